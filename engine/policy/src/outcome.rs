//! How an attempt ended, as the guards count it.

/// What one attempt says about its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// A connect error, a reset, a timeout, a broken message or a 5xx answer. A 429 is not.
    Failure,
    /// Says nothing: the downstream went away, a hedge lost.
    Ignored,
}

/// Why an attempt failed without an answer, or in the middle of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Connect,
    Reset,
    Timeout,
    /// The endpoint sent bytes that are not HTTP.
    Protocol,
}
