//! The speed of light of a mirror: one blocking thread that fetches, checks CRCs and writes.
//!
//! It keeps no index, no epochs, no state and no promise, so no mirror on the same machine can be much
//! faster or cheaper.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Copy, Setting};
use crate::backlog::{Backlog, Likeness, TOPIC, check_batches, file_name};
use crate::broker_client::{BrokerClient, bad};
use crate::failure::{Doing, Failure, Result};
use crate::measure::cpu::{Processes, cpu_seconds, memory_peak_bytes};
use crate::program::{guarded, run};

const COPIED_IN: Duration = Duration::from_secs(600);

/// What the loop copies, and in which pieces.
#[derive(Clone, Debug)]
pub(crate) struct CopyLoop {
    /// `host:port` of the source broker that leads every partition.
    pub(crate) source: String,
    /// Its partitions, from 0.
    pub(crate) partitions: usize,
    /// The largest response to ask for, in bytes; the same for each partition.
    pub(crate) response_bytes: i32,
}

struct Target {
    file: File,
    position: u64,
}

impl CopyLoop {
    /// Copies every partition up to its high watermark, into one file for each in `into`. What that cost
    /// this process, as JSON.
    pub(crate) fn run(&self, into: &Path) -> io::Result<Value> {
        let mut targets = (0..self.partitions)
            .map(|index| Ok(Target { file: File::create(into.join(file_name(index)))?, position: 0 }))
            .collect::<io::Result<Vec<_>>>()?;
        let mut offsets = vec![0; self.partitions];
        let mut broker = BrokerClient::connect(&self.source)?;
        let (began, cpu_before) = (Instant::now(), cpu_seconds("self").unwrap_or_default());
        let mut records = 0;
        loop {
            let asked = offsets.clone();
            let mut left = 0;
            broker.fetch(TOPIC, &asked, self.response_bytes, |index, high_watermark, batches| {
                let (Some(offset), Some(target)) = (offsets.get_mut(index), targets.get_mut(index)) else {
                    return Err(bad("a partition that was not asked for"));
                };
                let whole = check_batches(batches, offset, &mut records)?;
                target.file.write_all_at(&batches[..whole], target.position)?;
                target.position += whole as u64;
                left += high_watermark - *offset;
                Ok(())
            })?;
            if left == 0 {
                break;
            }
        }
        Ok(json!({
            "records": records,
            "bytes": targets.iter().map(|target| target.position).sum::<u64>(),
            "seconds": began.elapsed().as_secs_f64(),
            "cpu_seconds": cpu_seconds("self").unwrap_or_default() - cpu_before,
            "memory_peak_bytes": memory_peak_bytes("self"),
        }))
    }
}

/// Runs the loop as a process of its own and checks what it wrote.
pub(crate) fn copy(setting: &Setting<'_>, response_bytes: i32, directory: &Path) -> Result<Copy> {
    let into = directory.join("copied");
    fs::create_dir(&into).doing(|| format!("making {}", into.display()))?;
    let program = std::env::current_exe().doing(|| "looking for this program".to_owned())?;
    let mut command = guarded(program);
    command.arg("loop").args(["--source", setting.source.bootstrap()]).arg("--into").arg(&into);
    command.arg("--partitions").arg(setting.backlog.partitions().to_string());
    command.arg("--response-bytes").arg(response_bytes.to_string());
    // What it cost the loop itself is in its answer; this is what the others used.
    let around = Processes::new(&[], setting.source.id()).start();
    let printed = run("loop", command, directory, COPIED_IN)?;
    let mut cost = around.stop();
    let said: Value = serde_json::from_str(&printed)
        .map_err(|error| Failure::Wrong(format!("the loop printed {printed:?}: {error}")))?;
    let number = |name: &str| said[name].as_f64().unwrap_or(f64::NAN);
    cost.seconds = number("seconds");
    cost.cpu_seconds = number("cpu_seconds");
    let copied = Backlog::read_files(&into, setting.backlog.partitions())?;
    setting.backlog.expect_copy(&copied, Likeness::Bytes)?;
    Ok(Copy {
        bytes: number("bytes"),
        cost,
        first_after_seconds: 0.0,
        whole_seconds: number("seconds"),
        memory_peak_bytes: number("memory_peak_bytes"),
    })
}
