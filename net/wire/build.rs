//! Turns `schemas/*.txt` into the Rust of `tarn_wire::messages`, once per build.
//!
//! `parse` reads the line format, `check` refuses what does not hang together and names file and line,
//! `emit` writes. Only what `schemas/generated.list` names is written.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "build/check.rs"]
mod check;
#[path = "build/emit/mod.rs"]
mod emit;
#[path = "src/mirror_numbers.rs"]
#[expect(dead_code, unreachable_pub, reason = "a file of the crate, of which only the API keys matter here")]
mod mirror_numbers;
#[path = "build/parse.rs"]
mod parse;
#[path = "build/schema.rs"]
mod schema;

use schema::Message;

const SCHEMAS: [&str; 5] = ["rpc.txt", "control.txt", "metadata.txt", "coordinator.txt", "mirror.txt"];

fn main() -> Result<(), Box<dyn Error>> {
    for watched in ["build.rs", "build", "schemas", "src/mirror_numbers.rs"] {
        println!("cargo:rerun-if-changed={watched}");
    }
    let folder = PathBuf::from("schemas");
    let mut messages = Vec::new();
    for file in SCHEMAS {
        messages.extend(parse::file(file, &fs::read_to_string(folder.join(file))?)?);
    }
    check::all(&messages)?;
    let generated = named_in_list(&messages, &fs::read_to_string(folder.join("generated.list"))?)?;

    let out = PathBuf::from(env::var("OUT_DIR")?);
    write(&out, "messages.rs", &emit::messages(&generated)?)?;
    write(&out, "api_table.rs", &emit::api_table(&messages))?;
    write(&out, "metadata_records.rs", &emit::metadata_records(&generated))?;
    write(&out, "instances.rs", &emit::instances(&generated))?;
    println!("cargo::metadata=instances={}", out.join("instances.rs").display());
    Ok(())
}

fn write(out: &Path, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
    Ok(fs::write(out.join(name), text)?)
}

/// The messages that the list names: requests and responses by the name they share, others by their own.
fn named_in_list<'m>(messages: &'m [Message], list: &str) -> Result<Vec<&'m Message>, String> {
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names: BTreeSet<&str> = lines.flat_map(str::split_whitespace).collect();
    if let Some(unknown) = names.iter().find(|name| !messages.iter().any(|m| m.list_name() == **name)) {
        return Err(format!("generated.list: no schema has a message {unknown}"));
    }
    Ok(messages.iter().filter(|message| names.contains(message.list_name())).collect())
}
