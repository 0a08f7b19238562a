//! The controller of the node, and making this broker known to it.

use std::net::SocketAddr;
use std::sync::Arc;

use tarn_image::MetadataImage;
use tarn_image::config::server::{Listener, ServerConfig};
use tarn_image::features;
use tarn_log::LogDir;
use tarn_mirror::manager::ManagerHandle;
use tarn_quorum::{ControllerHandle, ControllerOptions, Running};
use tarn_wire::ErrorCode;
use tarn_wire::messages::broker_registration_request::Listener as RegisteredListener;
use tarn_wire::messages::{BrokerHeartbeatRequest, BrokerRegistrationRequest};
use uuid::Uuid;

use super::error::StartError;
use crate::published::Published;

pub(super) fn start_controller(
    config: &Arc<ServerConfig>,
    dirs: &[Arc<LogDir>],
    published: &[Arc<Published>],
    registration: &Arc<Published>,
    manager: &ManagerHandle,
) -> Result<Running, StartError> {
    let log_dir = dirs.iter().find(|dir| dir.path() == config.metadata_log_dir);
    let log_dir = log_dir
        .ok_or_else(|| StartError::NotFormatted { dir: config.metadata_log_dir.clone(), cluster: None })?;
    let (published, manager) = (published.to_vec(), manager.clone());
    let registration = Arc::downgrade(registration);
    let options = ControllerOptions {
        config: config.clone(),
        log_dir: log_dir.clone(),
        publisher: Box::new(move |update| {
            // The cores first: what the manager then tells them is of partitions that they know.
            published.iter().for_each(|core| core.publish(update.clone()));
            manager.metadata_changed(update.image.clone(), &update.delta);
            if let Some(waiting) = registration.upgrade() {
                waiting.publish(update);
            }
        }),
    };
    Ok(tarn_quorum::server::start(options)?)
}

/// Registers this broker and has it unfenced; its epoch.
pub(super) fn register(
    config: &ServerConfig,
    dirs: &[Arc<LogDir>],
    controller: &ControllerHandle,
    addresses: &[(String, SocketAddr)],
    cluster_id: &str,
) -> Result<i64, StartError> {
    let bound = |listener: &Listener| {
        let address = addresses.iter().find(|(name, _)| *name == listener.name);
        address.map_or(listener.port, |(_, address)| address.port())
    };
    let listeners = config.advertised_broker_listeners().map(|listener| RegisteredListener {
        name: listener.name.as_str().into(),
        host: listener.host.as_str().into(),
        port: if listener.port == 0 { bound(listener) } else { listener.port },
        security_protocol: 0,
    });
    let directories = dirs.iter().filter_map(|dir| dir.properties()?.directory_id).map(|id| id.0);
    let request = BrokerRegistrationRequest {
        broker_id: config.node_id.0,
        cluster_id: cluster_id.into(),
        incarnation_id: Uuid::new_v4(),
        listeners: listeners.collect(),
        features: features::to_register(),
        rack: config.rack.as_deref().map(Into::into),
        log_dirs: directories.collect(),
        ..Default::default()
    };
    let refused = |code: i16| StartError::NotRegistered(ErrorCode(code).name().to_owned());
    let no_controller = |error: tarn_quorum::Undecided| StartError::NotRegistered(error.to_string());
    futures_lite::future::block_on(async {
        let registered = controller.register_broker(request).await.map_err(no_controller)?;
        if registered.response.error_code != ErrorCode::NONE.0 {
            return Err(refused(registered.response.error_code));
        }
        let broker_epoch = registered.response.broker_epoch;
        let heartbeat = BrokerHeartbeatRequest {
            broker_id: config.node_id.0,
            broker_epoch,
            current_metadata_offset: registered.offset.0,
            want_fence: false,
            want_shut_down: false,
            ..Default::default()
        };
        let unfenced = controller.heartbeat(heartbeat).await.map_err(no_controller)?;
        match unfenced.response.error_code {
            code if code == ErrorCode::NONE.0 => Ok(broker_epoch),
            code => Err(refused(code)),
        }
    })
}

/// Waits for the metadata in which this broker is active; nobody collects what is published after it.
pub(super) fn wait_until_registered(config: &ServerConfig, published: Arc<Published>) -> Arc<MetadataImage> {
    loop {
        if let Some(update) = published.next_blocking().pop()
            && update.image.registrations().is_active(config.node_id)
        {
            return update.image;
        }
    }
}
