//! Brokers come, serve and go: registration and heartbeats.
//!
//! A broker registers fenced, and leads again from its first heartbeat without a wish to be fenced. Each
//! registration takes its leaderships away and each return gives them back, so that the leader epochs of
//! its partitions grow with every restart, as in Kafka.

use tarn_image::features::MIRROR_VERSION;
use tarn_image::{BrokerRegistration, MetadataImage};
use tarn_record::BrokerId;
use tarn_wire::messages::register_broker_record::{BrokerEndpoint, BrokerFeature};
use tarn_wire::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationChangeRecord,
    BrokerRegistrationRequest, BrokerRegistrationResponse, RegisterBrokerRecord,
};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::{ApiError, Context, Decision, elections};

/// In a BrokerRegistrationChangeRecord: fenced from now on.
const FENCE: i8 = 1;
/// In a BrokerRegistrationChangeRecord: no longer fenced.
const UNFENCE: i8 = -1;

/// Decides a registration. The broker's epoch is the offset of its record, which is the first.
pub fn register(
    image: &MetadataImage,
    request: &BrokerRegistrationRequest,
    context: &Context<'_>,
) -> Decision<BrokerRegistrationResponse> {
    if let Err(error) = check_registration(image, request, context) {
        let response =
            BrokerRegistrationResponse { error_code: error.code.0, ..BrokerRegistrationResponse::default() };
        return Decision::unchanged(response);
    }
    let id = BrokerId(request.broker_id);
    let known = image.registrations().broker(id);
    let same_life = known.filter(|broker| broker.incarnation == request.incarnation_id);
    let broker_epoch = same_life.map_or(context.next_offset.0, |broker| broker.epoch);
    let record: MetadataRecord = register_record(request, same_life, broker_epoch).into();
    if record.encode(record.latest_version()).is_err() {
        let error_code = ErrorCode::INVALID_REQUEST.0;
        return Decision::unchanged(BrokerRegistrationResponse { error_code, ..Default::default() });
    }
    let mut records = vec![record];
    if same_life.is_none() {
        records.extend(elections::on_fenced(image, id));
    }
    Decision::of(
        records,
        BrokerRegistrationResponse { broker_epoch, ..BrokerRegistrationResponse::default() },
    )
}

fn check_registration(
    image: &MetadataImage,
    request: &BrokerRegistrationRequest,
    context: &Context<'_>,
) -> Result<(), ApiError> {
    if &*request.cluster_id != context.cluster_id {
        let why =
            format!("Expected cluster ID {}, but got cluster ID {}", context.cluster_id, request.cluster_id);
        return Err(ApiError::new(ErrorCode::INCONSISTENT_CLUSTER_ID, why));
    }
    for (name, level) in image.features().iter() {
        let supported = request.features.iter().any(|feature| {
            *feature.name == *name
                && (feature.min_supported_version..=feature.max_supported_version).contains(&level)
        });
        // A node of Kafka would drop what mirrors need; other features it may be too old to list.
        if !supported && name == MIRROR_VERSION {
            let why = format!(
                "Unable to register because the broker does not support finalized version {level} of {name}."
            );
            return Err(ApiError::new(ErrorCode::UNSUPPORTED_VERSION, why));
        }
    }
    Ok(())
}

fn register_record(
    request: &BrokerRegistrationRequest,
    same_life: Option<&std::sync::Arc<BrokerRegistration>>,
    broker_epoch: i64,
) -> RegisterBrokerRecord {
    RegisterBrokerRecord {
        broker_id: request.broker_id,
        is_migrating_zk_broker: false,
        incarnation_id: request.incarnation_id,
        broker_epoch,
        end_points: request
            .listeners
            .iter()
            .map(|listener| BrokerEndpoint {
                name: listener.name.to_owned_str(),
                host: listener.host.to_owned_str(),
                port: listener.port,
                security_protocol: listener.security_protocol,
            })
            .collect(),
        features: request
            .features
            .iter()
            .map(|feature| BrokerFeature {
                name: feature.name.to_owned_str(),
                min_supported_version: feature.min_supported_version,
                max_supported_version: feature.max_supported_version,
            })
            .collect(),
        rack: request.rack.as_ref().map(|rack| rack.to_owned_str()),
        fenced: same_life.is_none_or(|broker| broker.fenced),
        in_controlled_shutdown: same_life.is_some_and(|broker| broker.in_controlled_shutdown),
        log_dirs: request.log_dirs.clone(),
        cordoned_log_dirs: None,
    }
}

/// Decides a heartbeat: whether the broker leads, or goes.
pub fn heartbeat(
    image: &MetadataImage,
    request: &BrokerHeartbeatRequest,
    context: &Context<'_>,
) -> Decision<BrokerHeartbeatResponse> {
    let id = BrokerId(request.broker_id);
    let broker = match check_epoch(image, id, request.broker_epoch) {
        Ok(broker) => broker,
        Err(error) => {
            let response =
                BrokerHeartbeatResponse { error_code: error.code.0, ..BrokerHeartbeatResponse::default() };
            return Decision::unchanged(response);
        }
    };
    let is_caught_up = request.current_metadata_offset >= request.broker_epoch;
    let wants_out = request.want_fence || request.want_shut_down;
    let (records, is_fenced) = match (broker.fenced, wants_out) {
        (true, false) if is_caught_up => (fencing(image, broker, UNFENCE, context), false),
        (false, true) => (fencing(image, broker, FENCE, context), true),
        (fenced, _) => (Vec::new(), fenced),
    };
    let response = BrokerHeartbeatResponse {
        is_caught_up,
        is_fenced,
        should_shut_down: request.want_shut_down,
        ..BrokerHeartbeatResponse::default()
    };
    Decision::of(records, response)
}

fn fencing(
    image: &MetadataImage,
    broker: &BrokerRegistration,
    fenced: i8,
    context: &Context<'_>,
) -> Vec<MetadataRecord> {
    let change = BrokerRegistrationChangeRecord {
        broker_id: broker.id.0,
        broker_epoch: broker.epoch,
        fenced,
        ..BrokerRegistrationChangeRecord::default()
    };
    let mut records: Vec<MetadataRecord> = vec![change.into()];
    match fenced {
        FENCE => records.extend(elections::on_fenced(image, broker.id)),
        _ => records.extend(elections::on_unfenced(image, broker.id, &context.config.properties)),
    }
    records
}

/// The registration of a broker in its present life.
///
/// # Errors
/// BROKER_ID_NOT_REGISTERED, or STALE_BROKER_EPOCH for an earlier life.
pub fn check_epoch(image: &MetadataImage, id: BrokerId, epoch: i64) -> Result<&BrokerRegistration, ApiError> {
    match image.registrations().broker(id) {
        None => Err(ApiError::bare(ErrorCode::BROKER_ID_NOT_REGISTERED)),
        Some(broker) if broker.epoch != epoch => {
            let why = format!("Expected broker epoch {epoch}, but found broker epoch {}", broker.epoch);
            Err(ApiError::new(ErrorCode::STALE_BROKER_EPOCH, why))
        }
        Some(broker) => Ok(broker),
    }
}

/// True where every registered broker is Tarn, told by the feature that only Tarn has.
pub fn all_are_tarn(image: &MetadataImage) -> Result<(), BrokerId> {
    let stranger = image
        .registrations()
        .brokers()
        .find(|broker| broker.supports(MIRROR_VERSION).is_none_or(|(_, max)| max < 1));
    stranger.map_or(Ok(()), |broker| Err(broker.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::{CLUSTER, World};
    use tarn_record::{Epoch, PartitionIndex};
    use uuid::Uuid;

    #[test]
    fn every_restart_raises_epochs_of_broker_and_partitions() {
        let mut world = World::with_topics(&["t"]);
        let id = world.image.topics().id_of("t").unwrap();
        let epochs = |world: &World| {
            let partition = world.image.topics().partition(id, PartitionIndex(0)).unwrap().clone();
            (partition.leader, partition.leader_epoch)
        };
        assert_eq!(epochs(&world), (BrokerId(1), Epoch(0)));
        let before = world.epoch_of(1);
        let answer = world.register(1, Uuid::from_u128(99));
        assert!(answer.broker_epoch > before);
        assert_eq!(epochs(&world), (BrokerId::NONE, Epoch(1)));
        assert!(!world.image.registrations().is_active(BrokerId(1)));
        let beat = world.heartbeat(1, false);
        assert_eq!((beat.error_code, beat.is_fenced, beat.is_caught_up), (0, false, true));
        assert_eq!(epochs(&world), (BrokerId(1), Epoch(2)));
    }

    #[test]
    fn the_epoch_is_the_offset_of_the_registration() {
        let mut world = World::with_brokers(1);
        let offset = world.next_offset;
        assert_eq!(world.register(1, Uuid::from_u128(5)).broker_epoch, offset.0);
        let again = world.register(1, Uuid::from_u128(5));
        assert_eq!(again.broker_epoch, offset.0, "the same life keeps its epoch");
    }

    #[test]
    fn a_broker_that_stops_gives_its_leaderships_up() {
        let mut world = World::with_topics(&["t"]);
        let beat = world.heartbeat(1, true);
        assert!(beat.is_fenced && beat.should_shut_down);
        let topic = world.image.topics().by_name("t").unwrap();
        let partition = &topic.partitions[&PartitionIndex(0)];
        assert_eq!((partition.leader, partition.isr.as_slice()), (BrokerId::NONE, [BrokerId(1)].as_slice()));
    }

    #[test]
    fn another_clusters_broker_and_a_stranger_among_mirrors_are_refused() {
        let mut world = World::with_brokers(1);
        let mut request = world.registration(2, Uuid::from_u128(2));
        request.cluster_id = "other".into();
        assert_eq!(world.decide_registration(&request).error_code, ErrorCode::INCONSISTENT_CLUSTER_ID.0);

        world.create_mirror("m", &[("bootstrap.servers", "a:1"), ("source.cluster.id", "S")]).unwrap();
        let mut request = world.registration(2, Uuid::from_u128(2));
        assert_eq!(&*request.cluster_id, CLUSTER);
        request.features.clear();
        assert_eq!(world.decide_registration(&request).error_code, ErrorCode::UNSUPPORTED_VERSION.0);
    }

    #[test]
    fn a_heartbeat_of_an_earlier_life_is_stale() {
        let world = World::with_brokers(1);
        let request = BrokerHeartbeatRequest {
            broker_id: 1,
            broker_epoch: world.epoch_of(1) - 1,
            ..Default::default()
        };
        assert!(check_epoch(&world.image, BrokerId(1), request.broker_epoch).is_err());
    }
}
