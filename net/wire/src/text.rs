//! A string of the protocol: a piece of the frame it came in, checked once to be UTF-8.
//!
//! Cloning counts a reference and copies nothing, which also means that a clone keeps the whole frame in
//! memory: what outlives the request is stored as `to_owned_str()`.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

/// A cheaply cloned string. Compares, hashes, prints and borrows like the `str` in it.
#[derive(Clone, Default)]
pub struct Str {
    /// Always UTF-8: the constructors take a `str` or check.
    bytes: Bytes,
}

impl Str {
    /// The string in `bytes`, not copied; `None` where it is not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Option<Str> {
        std::str::from_utf8(&bytes).is_ok().then_some(Str { bytes })
    }

    /// A string that lives as long as the program.
    pub const fn from_static(text: &'static str) -> Str {
        Str { bytes: Bytes::from_static(text.as_bytes()) }
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("every constructor of Str has checked or was given a str")
    }

    /// A copy with memory of its own, which keeps no frame alive.
    pub fn to_owned_str(&self) -> Str {
        Str { bytes: Bytes::copy_from_slice(&self.bytes) }
    }

    /// The UTF-8 bytes, shared.
    pub fn as_bytes_shared(&self) -> &Bytes {
        &self.bytes
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Str {
        Str { bytes: Bytes::copy_from_slice(text.as_bytes()) }
    }
}

impl From<String> for Str {
    fn from(text: String) -> Str {
        Str { bytes: Bytes::from(text.into_bytes()) }
    }
}

impl From<Str> for String {
    fn from(text: Str) -> String {
        text.as_str().to_owned()
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Str) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.bytes == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.bytes == other.as_bytes()
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Str) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Str) -> Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_map_keyed_by_str_is_searched_with_a_plain_string() {
        let map = HashMap::from([(Str::from("orders"), 7)]);
        assert_eq!(map.get("orders"), Some(&7));
        assert_eq!(map.get("order"), None);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_no_string() {
        assert_eq!(Str::from_utf8(Bytes::from_static(&[0x61, 0xff])), None);
        assert_eq!(Str::from_utf8(Bytes::from_static(b"a")), Some(Str::from_static("a")));
    }

    #[test]
    fn an_owned_copy_shares_no_memory_with_the_frame() {
        let frame = Bytes::from(b"orders".to_vec());
        let name = Str::from_utf8(frame.slice(0..3)).unwrap();
        assert_eq!(name.as_bytes_shared().as_ptr(), frame.as_ptr());
        let owned = name.to_owned_str();
        assert_eq!(owned, name);
        assert_ne!(owned.as_bytes_shared().as_ptr(), frame.as_ptr());
    }
}
