//! Several files as one input: the length of a name, the name, the length of a content, the content, and so on.
//!
//! Any bytes are an archive. A change touches one file, mostly its content, and then makes that file's checksums right.

use crate::checksums;
use crate::mutation::{INPUT_BYTES_MAX, Mutator};

/// Files with their names, in order.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// As one input.
pub(crate) fn pack(files: &Files) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, content) in files {
        packed.push(name.len() as u8);
        packed.extend_from_slice(name.as_bytes());
        packed.extend_from_slice(&(content.len() as u32).to_be_bytes());
        packed.extend_from_slice(content);
    }
    packed
}

/// The files of an input. What is cut short is as long as it is.
pub(crate) fn unpack(mut packed: &[u8]) -> Files {
    let mut files = Files::new();
    while let Some((&name_bytes, rest)) = packed.split_first() {
        let (name, rest) = rest.split_at(usize::from(name_bytes).min(rest.len()));
        let (length, rest) = rest.split_at(4.min(rest.len()));
        let length = length.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
        let (content, rest) = rest.split_at(length.min(rest.len()));
        files.push((String::from_utf8_lossy(name).into_owned(), content.to_vec()));
        packed = rest;
    }
    files
}

/// Changes one file of an archive, as a whole or in part; now and then the names too.
pub(crate) fn change(packed: &mut Vec<u8>, mutator: &mut Mutator, other: &[u8]) {
    let (mut files, others) = (unpack(packed), unpack(other));
    for _ in 0..mutator.random.usize(1..=2) {
        if files.is_empty() {
            break;
        }
        let at = mutator.random.usize(..files.len());
        match mutator.random.u8(..20) {
            0 => drop(files.remove(at)),
            1 => files[at].1.clear(),
            2 => {
                let mut name = std::mem::take(&mut files[at].0).into_bytes();
                mutator.change(&mut name, b"00000000000000000000.log");
                name.truncate(200);
                files[at].0 = String::from_utf8_lossy(&name).replace('/', "-");
            }
            3 => files.extend(mutator.random.choice(&others).cloned()),
            _ => change_content(&mut files[at], &others, mutator),
        }
    }
    *packed = pack(&files);
    packed.truncate(INPUT_BYTES_MAX);
}

fn change_content((name, content): &mut (String, Vec<u8>), others: &Files, mutator: &mut Mutator) {
    let of_its_kind = |(theirs, _): &&(String, Vec<u8>)| suffix(theirs) == suffix(name);
    let other = others.iter().find(of_its_kind).map_or(&[][..], |(_, content)| content);
    mutator.change(content, other);
    match suffix(name) {
        "log" | "checkpoint" => checksums::batches(content, mutator, other),
        "snapshot" => checksums::producer_snapshot(content, mutator, other),
        _ => {}
    }
}

fn suffix(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}
