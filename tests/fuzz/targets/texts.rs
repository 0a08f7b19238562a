//! Texts that people and clients write: the properties file of a server, settings, patterns, and the head of a request
//! to the admin listener.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use tarn_broker::admin::head::{Head, read_head};
use tarn_broker::loggers::Loggers;
use tarn_image::config::mirror::MirrorConfig;
use tarn_image::config::server::ServerConfig;
use tarn_image::mirrors::Wanted;
use tarn_mirror::state::MirrorState;
use tarn_record::{Compression, TopicId};

use crate::engine::{Says, Target};

pub(crate) fn all() -> Vec<Target> {
    vec![server_properties(), mirror_configs(), loggers(), words(), http_head()]
}

/// What properties are made of.
const PROPERTIES: &[&[u8]] = &[
    b"\n",
    b"\r",
    b"=",
    b":",
    b",",
    b"\\",
    b"\\\n",
    b"\\u",
    b"\\u00e9",
    b"\\ud800",
    b"\\uffff",
    b"#",
    b"!",
    b" ",
    b"\t",
    b"\x0c",
    b"\0",
    b"://",
    b"0.0.0.0:0",
    b"[::1]:1",
    b"[",
    b"]",
    b"@",
    b"-1",
    b"99999999999999999999",
    b"PLAINTEXT",
    b"SASL_SSL",
    b"INTERNAL:PLAINTEXT",
    b"log.dirs=/a,/b",
    b"tarn.cores=0-4095",
    b"tarn.cores=4095-0",
    b"listeners=",
    b"broker.id=",
    b"controller.quorum.bootstrap.servers=a:1",
    b"log.cleaner.dedupe.buffer.size=",
    b"*",
];

const LEAST: &str = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n\
    controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093\nlog.dirs=/data\n";

fn server_properties() -> Target {
    let more = "advertised.listeners=PLAINTEXT://host:9092\ntarn.cores=0-3,7\ntarn.mirror.cores=1,1\n\
        listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.retention.hours=7\n\
        log.cleaner.threads=2\nbroker.rack=r\ntarn.log.format=json\nunknown.key=\\u00e9\\\n  goes on\n# a comment\n";
    Target::new("text.server-properties", |input, _| {
        let parsed = ServerConfig::parse(&String::from_utf8_lossy(&input));
        Says::result(&parsed, |(_, notices)| notices.len())
    })
    .seeds([LEAST.to_owned(), format!("{LEAST}{more}")])
    .words(PROPERTIES)
    // Every key is a string in three maps, and a list of CPUs has an entry for each of up to 4,096 numbers in it.
    .memory(1000, 512 * 1024)
    .inputs(1500)
}

/// As lines; the key of one may be any of a mirror's.
fn mirror_configs() -> Target {
    let seed = "bootstrap.servers=a:9092,b:9092\ntopics.exclude=^__.*,a-.*\nfetch.min.bytes=1\n\
        request.timeout.ms=1000\nsecurity.protocol=PLAINTEXT\ngroups.include=.*";
    Target::new("text.mirror-configs", |input, _| {
        let text = String::from_utf8_lossy(&input);
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let configs: BTreeMap<Arc<str>, Arc<str>> =
            lines.map(|(key, value)| (Arc::from(key), Arc::from(value))).collect();
        Says::result(&MirrorConfig::resolve(&configs), |_| 1)
    })
    .seeds([seed])
    .words(&[
        b"\n",
        b"=",
        b",",
        b":",
        b"-1",
        b"(",
        b")",
        b"[",
        b"]",
        b"{2}",
        b"{9}",
        b"*",
        b"+?",
        b"\\pL",
        b"\\",
        b"(?i)",
        b"bootstrap.servers=",
        b"topics.include=",
        b"a:65536",
        b"[::1]:9092",
        b"99999999999999999999",
    ])
    // An expression is compiled, to no more than the library's own limit of some MiB.
    .memory(1000, 32 << 20)
    .inputs(800)
}

fn loggers() -> Target {
    Target::new("text.loggers", |input, _| {
        let parsed = String::from_utf8_lossy(&input).parse::<Loggers>();
        if let Ok(loggers) = &parsed {
            black_box((loggers.all().len(), loggers.targets()));
        }
        Says::result(&parsed, |loggers| loggers.all().len())
    })
    .seeds(["", "info,tarn_mirror=debug", "warn,a::b=trace,c=off,d[{x}]=error"])
    .words(&[b",", b"=", b"::", b"info", b"trace", b"off", b"[", b"]", b"{", b"}", b"root"])
    // A target is a string in three maps, and in a directive.
    .memory(400, 8192)
}

/// One word: a state, an id, a codec.
fn words() -> Target {
    Target::new("text.words", |input: Bytes, _| {
        let text = String::from_utf8_lossy(&input);
        let wanted = text.parse::<Wanted>();
        if let Ok(wanted) = &wanted {
            assert_eq!(wanted.to_string().parse::<Wanted>().as_ref(), Ok(wanted));
        }
        let id = text.parse::<TopicId>();
        if let Ok(id) = &id {
            assert_eq!(id.to_string().parse::<TopicId>().as_ref(), Ok(id));
        }
        Says::good(usize::from(wanted.is_ok()))
            .and(Says::good(usize::from(id.is_ok())))
            .and(Says::good(usize::from(text.parse::<MirrorState>().is_ok())))
            .and(Says::good(usize::from(text.parse::<Compression>().is_ok())))
    })
    .seeds([
        "mirroring:3",
        "stopped:9223372036854775807:truncate",
        "AAAAAAAAAAAAAAAAAAAAAQ",
        "MIRRORING",
        "zstd",
    ])
    .words(&[b":", b"truncate", b"paused", b"=", b"-", b"_"])
}

fn http_head() -> Target {
    Target::new("text.http-head", |input, steps| {
        let whole = read_head(&input);
        // It arrives in pieces, and what was once understood stays so.
        let mut arrived = 0;
        while arrived < input.len() {
            steps.take();
            arrived = (arrived + 97).min(input.len());
            if let Head::Whole(question) = read_head(&input[..arrived]) {
                return Says::shown(&question).and(Says::good(arrived / 97));
            }
        }
        Says::shown(&whole)
    })
    .seeds([
        &b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"[..],
        b"HEAD /readyz HTTP/1.0\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody",
    ])
    .words(&[
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b": ",
        b"GET ",
        b" HTTP/1.1",
        b"HTTP/2",
        b"a: b\r\n",
        b" \r\n ",
        b"\x7f",
    ])
    .memory(0, 1024)
}
