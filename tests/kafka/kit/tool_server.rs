//! Kafka's command-line tools, one after another in Java processes that stay (`ToolServer.java`): starting
//! one costs more than what most of them do.
//!
//! Invariants:
//! * a server runs one command at a time; one whose command did not end is never used again;
//! * there are at most as many servers as commands ran at once, and they end with the test process.

use crate::process::{Finished, guarded_child};
use crate::tools::java;
use std::io::{self, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The servers that have nothing to do.
static IDLE: Mutex<Vec<ToolServer>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct ToolServer {
    process: Child,
    commands: ChildStdin,
    answers: Receiver<io::Result<Finished>>,
}

/// Runs the `main` of a class of the class path, as if in a process of its own.
///
/// # Panics
/// Where it has not ended after `limit`, or ended the server.
pub(crate) fn run_tool(class: &str, arguments: &[&str], input: Option<&[u8]>, limit: Duration) -> Finished {
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut server = idle.unwrap_or_else(ToolServer::start);
    let finished = server.run(class, arguments, input, limit);
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(server);
    finished
}

impl ToolServer {
    fn start() -> ToolServer {
        let mut command = java("tools", "512m");
        command.arg("ToolServer").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = guarded_child(command).expect("java starts");
        let commands = process.stdin.take().expect("it is a pipe");
        let from = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let (sender, answers) = channel();
        thread::spawn(move || read_answers(from, &sender));
        ToolServer { process, commands, answers }
    }

    fn run(&mut self, class: &str, arguments: &[&str], input: Option<&[u8]>, limit: Duration) -> Finished {
        let mut command = Vec::new();
        put(&mut command, class.as_bytes());
        put_length(&mut command, arguments.len());
        arguments.iter().for_each(|argument| put(&mut command, argument.as_bytes()));
        put(&mut command, input.unwrap_or_default());
        let sent = self.commands.write_all(&command).and_then(|()| self.commands.flush());
        sent.unwrap_or_else(|error| panic!("{class}: the server of tools has ended: {error}"));
        match self.answers.recv_timeout(limit) {
            Ok(Ok(finished)) => finished,
            // Not through `Exit.exit`, which is all that the server can hold back.
            Ok(Err(error)) => panic!("{class} {arguments:?} ended the whole process: {error}"),
            Err(_) => panic!("{class} {arguments:?} has not ended after {limit:?}"),
        }
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        // An error means that it has just ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn put(command: &mut Vec<u8>, bytes: &[u8]) {
    put_length(command, bytes.len());
    command.extend_from_slice(bytes);
}

fn put_length(command: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("a command is short");
    command.extend_from_slice(&length.to_be_bytes());
}

/// Until the server ends, or nobody waits for an answer any more.
fn read_answers(mut from: BufReader<ChildStdout>, to: &Sender<io::Result<Finished>>) {
    loop {
        let answer = read_answer(&mut from);
        let last = answer.is_err();
        if to.send(answer).is_err() || last {
            return;
        }
    }
}

fn read_answer(from: &mut impl Read) -> io::Result<Finished> {
    let code = i32::from_be_bytes(four_bytes(from)?);
    Ok(Finished { code: Some(code), stdout: read_text(from)?, stderr: read_text(from)? })
}

fn read_text(from: &mut impl Read) -> io::Result<String> {
    let length = u32::from_be_bytes(four_bytes(from)?);
    let mut bytes = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn four_bytes(from: &mut impl Read) -> io::Result<[u8; 4]> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
