//! A range of the caller's bytes that stays valid when the buffer moves.

/// Start and length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub len: u32,
}

impl Span {
    /// The span of `part` inside `whole`.
    ///
    /// # Panics
    /// In debug builds when `part` is not inside `whole`.
    pub(crate) fn of(part: &[u8], whole: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        debug_assert!(start + part.len() <= whole.len());
        Span {
            start: start as u32,
            len: part.len() as u32,
        }
    }

    /// The bytes, empty when the buffer is shorter than it was.
    #[must_use]
    pub fn of_bytes(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or(&[])
    }
}
