//! What an independent codec, `kafka-protocol`, makes of our bytes.
//!
//! It is generated from Kafka 4.1's own schemas. For each message and version that both have, it reads what
//! we wrote, sees the same values under the same names, writes the same bytes, and we read those.

use std::fmt::Debug;

use bytes::BytesMut;
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable};
use tarn_wire::{Cursor, Message, messages as ours};

use crate::debug_tree::difference;
use crate::maker::{Instance, case};
use crate::round_trip::encoded;

const SEEDS: u64 = 16;

fn agree<O, T>(prepare: impl Fn(&mut O, i16))
where
    O: Message + Instance + Debug + PartialEq,
    T: kafka_protocol::protocol::Message + Encodable + Decodable + Debug,
{
    let versions = O::MIN_VERSION.max(T::VERSIONS.min)..=O::MAX_VERSION.min(T::VERSIONS.max);
    assert!(!versions.is_empty(), "{}", O::NAME);
    for version in versions {
        for seed in 0..SEEDS {
            let at = format!("{} v{version} seed {seed}", O::NAME);
            let mut message: O = case(seed, version);
            prepare(&mut message, version);
            let bytes = encoded(&message, version);

            let mut unread = bytes.clone();
            let read =
                T::decode(&mut unread, version).unwrap_or_else(|error| panic!("{at}: {error}\n{message:?}"));
            assert!(unread.is_empty(), "{at}: {} bytes left", unread.len());
            let differs = difference(&format!("{message:?}"), &format!("{read:?}"));
            assert_eq!(differs, None, "{at}: ours and theirs");

            let mut written = BytesMut::new();
            read.encode(&mut written, version).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(written, bytes, "{at}");
            assert_eq!(O::decode(&mut Cursor::new(written.freeze()), version), Ok(message), "{at}");
        }
    }
}

macro_rules! agreement {
    ($($test:ident: $($message:ident)*;)*) => {
        $(#[test]
        fn $test() {
            $(agree::<ours::$message, theirs::$message>(|_, _| {});)*
        })*
    };
}

agreement! {
    records_and_connections_agree: ProduceRequest ProduceResponse FetchRequest FetchResponse
        ListOffsetsRequest ListOffsetsResponse MetadataRequest MetadataResponse SaslHandshakeRequest
        SaslHandshakeResponse ApiVersionsRequest ApiVersionsResponse DeleteRecordsRequest
        DeleteRecordsResponse InitProducerIdRequest InitProducerIdResponse OffsetForLeaderEpochRequest
        OffsetForLeaderEpochResponse SaslAuthenticateRequest SaslAuthenticateResponse;
    groups_agree: OffsetCommitRequest OffsetCommitResponse OffsetFetchRequest OffsetFetchResponse
        FindCoordinatorRequest FindCoordinatorResponse JoinGroupRequest JoinGroupResponse HeartbeatRequest
        HeartbeatResponse LeaveGroupRequest LeaveGroupResponse SyncGroupRequest SyncGroupResponse
        DescribeGroupsRequest DescribeGroupsResponse ListGroupsRequest ListGroupsResponse
        DeleteGroupsRequest DeleteGroupsResponse OffsetDeleteRequest OffsetDeleteResponse
        ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse ConsumerGroupDescribeRequest
        ConsumerGroupDescribeResponse;
    topics_and_configs_agree: CreateTopicsRequest CreateTopicsResponse DeleteTopicsRequest
        DeleteTopicsResponse DescribeConfigsRequest DescribeConfigsResponse AlterConfigsRequest
        AlterConfigsResponse AlterReplicaLogDirsRequest AlterReplicaLogDirsResponse DescribeLogDirsRequest
        DescribeLogDirsResponse CreatePartitionsRequest CreatePartitionsResponse ElectLeadersRequest
        ElectLeadersResponse IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse
        AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse
        ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse
        GetTelemetrySubscriptionsRequest GetTelemetrySubscriptionsResponse PushTelemetryRequest
        PushTelemetryResponse ListConfigResourcesRequest ListConfigResourcesResponse
        DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse;
    transactions_agree: AddPartitionsToTxnRequest AddPartitionsToTxnResponse AddOffsetsToTxnRequest
        AddOffsetsToTxnResponse EndTxnRequest EndTxnResponse WriteTxnMarkersRequest WriteTxnMarkersResponse
        TxnOffsetCommitRequest TxnOffsetCommitResponse DescribeProducersRequest DescribeProducersResponse
        DescribeTransactionsRequest DescribeTransactionsResponse ListTransactionsRequest
        ListTransactionsResponse;
    security_and_quotas_agree: DescribeAclsRequest DescribeAclsResponse CreateAclsRequest CreateAclsResponse
        DeleteAclsRequest DeleteAclsResponse CreateDelegationTokenRequest CreateDelegationTokenResponse
        RenewDelegationTokenRequest RenewDelegationTokenResponse ExpireDelegationTokenRequest
        ExpireDelegationTokenResponse DescribeDelegationTokenRequest DescribeDelegationTokenResponse
        DescribeClientQuotasRequest DescribeClientQuotasResponse AlterClientQuotasRequest
        AlterClientQuotasResponse DescribeUserScramCredentialsRequest DescribeUserScramCredentialsResponse
        AlterUserScramCredentialsRequest AlterUserScramCredentialsResponse;
    quorum_and_brokers_agree: VoteRequest VoteResponse BeginQuorumEpochRequest BeginQuorumEpochResponse
        EndQuorumEpochRequest EndQuorumEpochResponse DescribeQuorumRequest DescribeQuorumResponse
        AlterPartitionRequest AlterPartitionResponse UpdateFeaturesRequest UpdateFeaturesResponse
        EnvelopeRequest EnvelopeResponse FetchSnapshotRequest FetchSnapshotResponse DescribeClusterRequest
        DescribeClusterResponse BrokerRegistrationRequest BrokerRegistrationResponse BrokerHeartbeatRequest
        BrokerHeartbeatResponse UnregisterBrokerRequest UnregisterBrokerResponse AllocateProducerIdsRequest
        AllocateProducerIdsResponse ControllerRegistrationRequest ControllerRegistrationResponse
        AssignReplicasToDirsRequest AssignReplicasToDirsResponse AddRaftVoterRequest AddRaftVoterResponse
        RemoveRaftVoterRequest RemoveRaftVoterResponse UpdateRaftVoterRequest UpdateRaftVoterResponse;
    share_groups_agree: ShareGroupHeartbeatRequest ShareGroupHeartbeatResponse ShareGroupDescribeRequest
        ShareGroupDescribeResponse ShareFetchRequest ShareFetchResponse ShareAcknowledgeRequest
        ShareAcknowledgeResponse InitializeShareGroupStateRequest InitializeShareGroupStateResponse
        ReadShareGroupStateRequest ReadShareGroupStateResponse WriteShareGroupStateRequest
        WriteShareGroupStateResponse DeleteShareGroupStateRequest DeleteShareGroupStateResponse
        ReadShareGroupStateSummaryRequest ReadShareGroupStateSummaryResponse
        DescribeShareGroupOffsetsRequest DescribeShareGroupOffsetsResponse AlterShareGroupOffsetsRequest
        AlterShareGroupOffsetsResponse DeleteShareGroupOffsetsRequest DeleteShareGroupOffsetsResponse;
    headers_and_control_records_agree: ConsumerProtocolAssignment ConsumerProtocolSubscription
        DefaultPrincipalData EndTxnMarker KRaftVersionRecord RequestHeader
        ResponseHeader SnapshotFooterRecord SnapshotHeaderRecord;
}

/// Their reader takes the field called `Version` for the version that it reads, which it is when Kafka wrote it.
#[test]
fn control_records_that_repeat_their_version_agree() {
    agree::<ours::LeaderChangeMessage, theirs::LeaderChangeMessage>(|message, version| {
        message.version = version
    });
    agree::<ours::VotersRecord, theirs::VotersRecord>(|message, version| message.version = version);
}
