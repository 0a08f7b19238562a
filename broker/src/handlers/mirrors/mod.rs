//! The APIs of cluster mirroring (KIP-1279, mirror-schemas).

mod apart;
mod describe;
mod existing;
mod recovering;
mod reports;
mod states;
mod verbs;

use std::rc::Rc;
use std::sync::Arc;

use tarn_image::DesiredState;
use tarn_image::config::mirror::{self, MirrorConfig, Patterns};
use tarn_mirror::reasons::Reason;
use tarn_mirror::source::{self, Resolved, SourceTopic};
use tarn_wire::messages::create_cluster_mirror_request::MirrorConfig as GivenConfig;
use tarn_wire::messages::list_cluster_mirrors_response::ListedMirror;
use tarn_wire::messages::start_mirror_topics_response::MirrorTopicResult;
use tarn_wire::messages::{
    CreateClusterMirrorRequest, CreateClusterMirrorResponse, ListClusterMirrorsRequest,
    ListClusterMirrorsResponse, StartMirrorTopicsRequest, StartMirrorTopicsResponse,
};
use tarn_wire::{ErrorCode, Str};

pub use describe::describe;
pub use recovering::recover;
pub use reports::reports;
pub use states::{read_offsets, read_states, write_states};
pub use verbs::{complete_stop, delete, pause, resume, stop};

use crate::coordinators::forgetting::{self, Gone};
use crate::core::Core;

/// The key that pins the source's identity.
const SOURCE_CLUSTER_ID: &str = "source.cluster.id";

/// Serves CreateClusterMirror: asks the source who it is, has what is left of an earlier mirror of the name
/// forgotten, and lets the controller decide.
pub async fn create(core: &Rc<Core>, mut request: CreateClusterMirrorRequest) -> CreateClusterMirrorResponse {
    let given = request.configs.iter();
    let given = given.map(|config| (&*config.name, config.value.as_deref()));
    let config = mirror::validate_name(&request.mirror_name)
        .and_then(|()| mirror::stored(given))
        .and_then(|stored| mirror::validate(&stored).and_then(|()| MirrorConfig::resolve(&stored)));
    let config = match config {
        Ok(config) => config,
        Err(error) => return refuse_create(ErrorCode::INVALID_CONFIG, error.to_string()),
    };
    let exists = core.view().image().mirror(&request.mirror_name).is_some();
    if !exists {
        match source::cluster_id(&config, core.node().cluster_id()).await {
            Ok(_) if config.source_cluster_id.is_some() => {}
            Ok(id) => {
                request.configs.push(GivenConfig { name: SOURCE_CLUSTER_ID.into(), value: Some(id.into()) })
            }
            Err(error) => return refuse_create(error.code(), format!("{}: {error}", error.reason())),
        }
    }
    if !request.validate_only
        && let Some(gone) = Gone::of(&core.image(), &request.mirror_name)
        && let Err(error) = forgetting::everywhere(core, &gone).await
    {
        let reason = Reason::CoordinatorUnavailable;
        let why =
            format!("{reason}: what an earlier mirror of the name has left cannot be removed now: {error}");
        return refuse_create(ErrorCode::COORDINATOR_NOT_AVAILABLE, why);
    }
    match core.decided(core.node().controller().create_mirror(request)).await {
        Ok(response) => response,
        Err(error) => refuse_create(verbs::undecided(error), error.to_string()),
    }
}

fn refuse_create(error: ErrorCode, message: String) -> CreateClusterMirrorResponse {
    CreateClusterMirrorResponse {
        error_code: error.0,
        error_message: Some(message.into()),
        ..Default::default()
    }
}

/// Serves StartMirrorTopics: finds the topics that the patterns mean at the source, and lets the
/// controller decide.
pub async fn start(core: &Rc<Core>, mut request: StartMirrorTopicsRequest) -> StartMirrorTopicsResponse {
    let mut refused = Vec::new();
    let mut note = None;
    if request.topics.is_empty() {
        match resolve(core, &request).await {
            Ok(Found::NotNow(why)) => note = Some(why),
            Ok(Found::Topics(found)) => {
                let (back, topics): (Vec<_>, Vec<_>) =
                    found.into_iter().partition(|topic| topic.loop_of.is_some());
                request.topics = topics.iter().map(SourceTopic::to_start).collect();
                refused.extend(back.iter().map(refuse_loop));
            }
            Err(refused) => return refused,
        }
    }
    let mut looked = existing::look_at(core, &mut request).await;
    match core.decided(core.node().controller().start_mirror_topics(request)).await {
        Ok(mut response) => {
            looked.tell(&mut response.topics);
            response.topics.extend(refused.into_iter().chain(looked.refused));
            if response.error_code == ErrorCode::NONE.0 {
                response.error_message = response.error_message.or(note.map(Str::from));
            }
            response
        }
        Err(error) => refuse_start(verbs::undecided(error), error.to_string()),
    }
}

/// What the names and patterns of a request mean at the source.
enum Found {
    Topics(Vec<SourceTopic>),
    /// The source cannot be reached, and why: they are kept, and looked up once it is.
    NotNow(String),
}

async fn resolve(
    core: &Rc<Core>,
    request: &StartMirrorTopicsRequest,
) -> Result<Found, StartMirrorTopicsResponse> {
    let view = core.view();
    let Some(mirror) = view.image().mirror(&request.mirror_name) else {
        let message = format!("there is no mirror {}", &*request.mirror_name);
        return Err(refuse_start(ErrorCode::UNKNOWN_CLUSTER_MIRROR, message));
    };
    let config = MirrorConfig::resolve(mirror.configs)
        .map_err(|error| refuse_start(ErrorCode::INVALID_CONFIG, error.to_string()))?;
    let parse = |patterns: &[Str]| {
        Patterns::parse(patterns.iter().map(|pattern| &**pattern))
            .map_err(|error| refuse_start(ErrorCode::INVALID_REQUEST, error.to_string()))
    };
    let (include, exclude) = (parse(&request.include_patterns)?, parse(&request.exclude_patterns)?);
    let texts: Vec<&str> = request.include_patterns.iter().map(|text| &**text).collect();
    match source::resolve(&config, (&texts, &include), &exclude, core.node().cluster_id()).await {
        Ok(Resolved { topics, missing }) if missing.is_empty() => Ok(Found::Topics(topics)),
        Ok(Resolved { missing, .. }) => {
            let missing = missing.join(", ");
            let why = format!(
                "the source has no topic {missing} to mirror, so nothing was begun or saved; internal topics never are"
            );
            Err(refuse_start(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, why))
        }
        Err(error) if error.reason() == Reason::SourceUnreachable => {
            let bindings = view.image().bindings();
            let mut bound = bindings.topics_of(&request.mirror_name);
            let has_ended = |name: &Arc<str>| {
                let desired = bindings.of(name).map(|binding| binding.desired);
                include.matches(name)
                    && matches!(desired, Some(DesiredState::Stopping | DesiredState::Stopped))
            };
            if let Some(stopped) = bound.find(|name| has_ended(name)) {
                let why = format!(
                    "{}: {error}; nothing was changed: topic {stopped} is still stopped, and can be started again once \
                     the source answers",
                    error.reason()
                );
                return Err(refuse_start(error.code(), why));
            }
            Ok(Found::NotNow(format!("the topics could not be looked up: {error}")))
        }
        Err(error) => Err(refuse_start(error.code(), format!("{}: {error}", error.reason()))),
    }
}

fn refuse_loop(topic: &SourceTopic) -> MirrorTopicResult {
    let why = topic.loop_of.as_deref().unwrap_or_default();
    MirrorTopicResult {
        name: topic.name.as_str().into(),
        error_code: ErrorCode::INVALID_REQUEST.0,
        error_message: Some(format!("{}: {why}", Reason::MirrorLoop).into()),
        ..MirrorTopicResult::default()
    }
}

fn refuse_start(error: ErrorCode, message: String) -> StartMirrorTopicsResponse {
    StartMirrorTopicsResponse {
        error_code: error.0,
        error_message: Some(message.into()),
        ..Default::default()
    }
}

/// Serves ListClusterMirrors from the metadata.
pub fn list(core: &Rc<Core>, request: &ListClusterMirrorsRequest) -> ListClusterMirrorsResponse {
    let view = core.view();
    let image = view.image();
    let named = |filter: &Option<Vec<Str>>, value: &str| {
        filter.as_ref().is_none_or(|names| names.iter().any(|name| &**name == value))
    };
    let upstream =
        |mirror: &str| core.node().mirrors().map(|manager| manager.upstream(mirror)).unwrap_or_default();
    let mirrors = image.mirrors().filter(|mirror| {
        named(&request.mirror_names, mirror.name)
            && named(&request.source_cluster_ids, mirror.source_cluster_id().unwrap_or(""))
    });
    let listed = mirrors.map(|mirror| {
        let topics: Vec<Str> = image
            .bindings()
            .topics_of(mirror.name)
            .filter(|topic| {
                let desired = image.bindings().of(topic).map(|binding| binding.desired.to_string());
                named(&request.desired_states, &desired.unwrap_or_default())
            })
            .map(|topic| (&**topic).into())
            .collect();
        ListedMirror {
            mirror_name: mirror.name.into(),
            source_bootstrap: mirror.bootstrap_servers().into(),
            source_cluster_id: mirror.source_cluster_id().unwrap_or("").into(),
            upstream_cluster_ids: upstream(mirror.name).into_iter().map(Str::from).collect(),
            topic_count: topics.len() as i32,
            topic_names: request.include_topic_names.then_some(topics),
        }
    });
    ListClusterMirrorsResponse { mirrors: listed.collect(), ..Default::default() }
}
