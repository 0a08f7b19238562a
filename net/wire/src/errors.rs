//! every
/// x
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub i16);
