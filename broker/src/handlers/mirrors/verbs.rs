//! The verbs that change what is wanted of a mirror's topics, and its deletion: the controller decides, without
//! the source.

use std::rc::Rc;

use tarn_mirror::reasons::Reason;
use tarn_quorum::Undecided;
use tarn_wire::ErrorCode;
use tarn_wire::messages as m;

use crate::coordinators::forgetting::{self, Gone};
use crate::core::Core;

macro_rules! verbs {
    ($($(#[$doc:meta])* $seen:vis $name:ident($request:ident) -> $response:ident, $ask:ident;)*) => {
        $($(#[$doc])*
        $seen async fn $name(core: &Rc<Core>, request: m::$request) -> m::$response {
            let decided = core.decided(core.node().controller().$ask(request)).await;
            decided.unwrap_or_else(|error| m::$response {
                error_code: undecided(error).0,
                error_message: Some(format!("{}: {error}", Reason::ControllerUnavailable).into()),
                ..Default::default()
            })
        })*
    };
}

/// What is told of a decision that there is none of: asked again, there is one, but where it contradicts itself.
pub(super) fn undecided(error: Undecided) -> ErrorCode {
    match error {
        Undecided::NotController | Undecided::NoRoom => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        Undecided::Impossible => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

verbs! {
    /// Serves StopMirrorTopics.
    pub stop(StopMirrorTopicsRequest) -> StopMirrorTopicsResponse, stop_mirror_topics;
    /// Serves PauseMirrorTopics.
    pub pause(PauseMirrorTopicsRequest) -> PauseMirrorTopicsResponse, pause_mirror_topics;
    /// Serves ResumeMirrorTopics.
    pub resume(ResumeMirrorTopicsRequest) -> ResumeMirrorTopicsResponse, resume_mirror_topics;
    /// Has the controller recover topics.
    pub(super) recover_decided(RecoverMirrorTopicsRequest) -> RecoverMirrorTopicsResponse, recover_mirror_topics;
    /// Has it written down that topics have stopped, as their mirror asks.
    pub complete_stop(CompleteMirrorStopRequest) -> CompleteMirrorStopResponse, complete_mirror_stop;
    /// Has the controller delete a mirror.
    delete_decided(DeleteClusterMirrorRequest) -> DeleteClusterMirrorResponse, delete_mirror;
}

/// Serves DeleteClusterMirror: the mirror goes, and with it what the coordinators keep of it. One that does
/// not answer forgets later; the mirror is deleted even so.
pub async fn delete(
    core: &Rc<Core>,
    request: m::DeleteClusterMirrorRequest,
) -> m::DeleteClusterMirrorResponse {
    let (mirror, is_trial) = (request.mirror_name.clone(), request.validate_only);
    let mut response = delete_decided(core, request).await;
    if response.error_code != ErrorCode::NONE.0 || is_trial {
        return response;
    }
    if let Some(gone) = Gone::of(&core.image(), &mirror)
        && let Err(error) = forgetting::everywhere(core, &gone).await
    {
        let why = format!("It is deleted; what is kept of it goes once its coordinators answer: {error}");
        response.error_message = Some(why.into());
    }
    response
}
