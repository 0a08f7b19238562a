//! Brings what tarn-wire's build writes for its own tests, random values for every message, to the fuzzer.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let instances = env::var("DEP_TARN_WIRE_INSTANCES")?;
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={instances}");
    fs::copy(instances, PathBuf::from(env::var("OUT_DIR")?).join("instances.rs"))?;
    Ok(())
}
