//! A core of a test's own, beside a node that runs: it leads what the test gives it, on a disk that is watched.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use futures_lite::future::poll_once;
use tarn_image::config::server::ServerConfig;
use tarn_log::{Descriptors, LogDir, RealDisk};
use tarn_quorum::format::{self, FormatOptions, Formatted, Quorum};
use tarn_record::{Epoch, Offset, Timestamp, TopicIdPartition};
use tarn_runtime::channel::{Flag, mailbox, reply};
use tarn_runtime::{CoreId, CoreSpec, spawn_core};

use crate::Broker;
use crate::core::Core;
use crate::envelope::{Envelope, FetchAnswer, FetchRead};
use crate::interest::{InterestId, Scope, Wanted};
use crate::replica::Isolation;
use crate::router::Placement;
use crate::watched_disk::WatchedDisk;

/// See the module.
pub(crate) struct LoneCore {
    pub(crate) core: Rc<Core>,
    pub(crate) disk: WatchedDisk,
    pub(crate) dir: Arc<LogDir>,
}

impl LoneCore {
    /// What a fetch of a session is answered at once; `wake` is told of news.
    pub(crate) async fn fetch(
        &self,
        (interest, wake): (InterestId, &Flag),
        wanted: &[(TopicIdPartition, Offset)],
        scope: Scope,
    ) -> FetchAnswer {
        let from = |fetch_offset| Wanted {
            fetch_offset,
            max_bytes: 1000,
            current_leader_epoch: Epoch::NONE,
            last_fetched_epoch: Epoch::NONE,
        };
        let (slot, mut answer) = reply();
        wake.lower();
        self.core.handle(Envelope::Fetch(FetchRead {
            interest,
            wake: wake.clone(),
            upserts: wanted.iter().map(|(partition, offset)| (*partition, from(*offset))).collect(),
            forgets: Vec::new(),
            requeue: Vec::new(),
            scope,
            max_bytes: 10_000,
            isolation: Isolation::Replica,
            reply: slot,
        }));
        poll_once(&mut answer).await.expect("it does not wait").expect("it is answered")
    }

    /// Waits until there is news for a session.
    pub(crate) async fn has_news(&self, (interest, wake): (InterestId, &Flag)) {
        self.core.handle(Envelope::Arm(interest, wake.clone()));
        wake.raised().await;
    }
}

/// Runs `test` on a core of its own.
pub(crate) fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(LoneCore) -> F + Send + 'static) {
    let files = tempfile::tempdir().expect("a directory");
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\nlog.dirs={}\ntarn.cores=0\n\
         controller.quorum.bootstrap.servers=127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n",
        files.path().join("node").display()
    );
    let config = ServerConfig::parse(&text).expect("the test's file is good").0;
    let options = FormatOptions {
        cluster_id: "MkU3OEVBNTcwNTJENDM2Qg",
        config: &config,
        quorum: Quorum::Standalone,
        formatted: Formatted::Refuse,
    };
    let disk: Arc<dyn tarn_log::Disk> = Arc::new(RealDisk);
    format::format(&disk, &options, Timestamp(1_700_000_000_000)).expect("the directory is new");
    let broker = Broker::start(config).expect("it starts");
    let (node, logs) = (broker.node().clone(), files.path().join("logs"));
    let spec = CoreSpec { cpu: None, name: "test".to_owned() };
    let core = spawn_core(spec, move || async move {
        let (peer, inbox) = mailbox(16);
        let core = Core::new(CoreId(0), node, vec![peer], Placement::new(vec![CoreId(0)]));
        core.start(inbox);
        let disk = WatchedDisk::default();
        let dir = LogDir::open(disk.disk(), logs, Descriptors::new(10_000)).expect("it is new");
        test(LoneCore { core, disk, dir }).await;
    });
    core.expect("a core").join();
    broker.stop();
}
