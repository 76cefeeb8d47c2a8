//! What all guards have in common.

/// Whether a guard acts on what it decides, or only counts and reports it (`enforce = false`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Enforce,
    Observe,
}
