//! Every message that `schemas/generated.list` names, one module each, as the build script wrote them.
//!
//! A struct's `Default` is its schema's. Fields that a version lacks are left at their default when reading.

// The generated code fills a default field by field, because which fields there are depends on the version.
#![allow(clippy::field_reassign_with_default)]

include!(concat!(env!("OUT_DIR"), "/messages.rs"));
