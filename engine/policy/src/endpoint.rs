//! The name of an endpoint inside its upstream.

/// Position of an endpoint in its upstream's list, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

impl EndpointId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}
