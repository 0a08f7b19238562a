//! Every message that the schemas generate, in every version, and what stands before them.
//!
//! An input is two bytes of version and then the message. A coordinator's key and value are read once more as they
//! stand in a log, behind their type or version.

use std::fmt::Debug;

use bytes::{Buf, Bytes};
use tarn_wire::messages::*;
use tarn_wire::{
    Cursor, HeaderError, Message, MetadataRecord, PartsWriter, Records, coordinator_key_type, decode_key,
    decode_request_header, decode_response_header, decode_value, encode_request, encode_response,
};

use crate::engine::{Says, Steps, Target};
use crate::maker::{Instance, case, every_message};

/// What the elements of an array may take for each byte on the wire, twice while it grows, and each of a few nested
/// arrays may have believed a count for as many bytes as are left: as net/wire/tests/wire/hostile.rs has it.
const MEMORY_PER_BYTE: usize = 200;
const MEMORY_BASE: usize = 4096;

/// Inputs for each message: there are hundreds of these.
const INPUTS: u64 = 1200;

/// Random messages of each version.
const SEEDS: u64 = 3;

/// Every message of `generated.list`.
pub(crate) fn all() -> Vec<Target> {
    let mut targets = Vec::new();
    macro_rules! add {
        ($message:ident) => {
            targets.push(target::<$message>(stringify!($message)));
        };
    }
    every_message!(add);
    targets
}

fn target<M: Message + Instance + Debug + 'static>(name: &str) -> Target {
    let versions = M::MIN_VERSION..=M::MAX_VERSION;
    let seeds = versions.flat_map(|version| {
        let made = (0..SEEDS).map(move |seed| case::<M>(seed, version));
        made.chain([M::default()]).filter_map(move |message| with_version(&message, version))
    });
    Target::new(format!("message.{name}"), read::<M>)
        .seeds(seeds)
        .memory(MEMORY_PER_BYTE, MEMORY_BASE)
        .inputs(INPUTS)
}

/// Reads a message; what was read can be written, as it was read.
fn read<M: Message + Debug>(mut input: Bytes, _: &mut Steps) -> Says {
    let Some(version) = version_of(&mut input) else { return Says::good(0) };
    let mut cursor = Cursor::new(input);
    let read = M::decode(&mut cursor, version);
    if let Ok(message) = &read {
        let size = message.encoded_size(version);
        assert!(size.is_ok(), "{message:?} was read and cannot be written: {size:?}");
    }
    Says::good(usize::from(version.cast_unsigned())).and(Says::result(&read, |_| cursor.position()))
}

fn version_of(input: &mut Bytes) -> Option<i16> {
    input.try_get_i16().ok()
}

fn with_version<M: Message>(message: &M, version: i16) -> Option<Vec<u8>> {
    let mut writer = PartsWriter::default();
    message.encode(&mut writer, version).ok()?;
    let mut all = Records::default();
    writer.into_parts().into_iter().for_each(|part| all.push(part));
    let body = all.to_bytes().expect("no instance has a part in a file");
    Some([&version.to_be_bytes()[..], &body].concat())
}

/// What stands before requests and responses, and around the records of the controller and the coordinators.
pub(crate) fn framed() -> Vec<Target> {
    vec![request_header(), response_header(), metadata_record(), coordinator_record()]
}

fn request_header() -> Target {
    let seeds = [
        encode_request(1, "client", 12, &case::<MetadataRequest>(1, 12)),
        encode_request(i32::MAX, "", 0, &ApiVersionsRequest::default()),
        encode_request(-1, "a client with a long name", 9, &case::<ProduceRequest>(2, 9)),
        encode_request(7, "c", 7, &case::<FetchRequest>(3, 7)),
    ];
    let seeds = seeds.map(|frame| frame.expect("they fit").to_bytes().expect("nothing is in a file"));
    Target::new("frame.request", |input, _| {
        let mut cursor = Cursor::new(input);
        let header = decode_request_header(&mut cursor);
        if let Err(HeaderError::UnknownApi { .. }) = header {
            return Says::good(2);
        }
        Says::result(&header, |header| usize::from(header.client_id.is_some()))
    })
    .seeds(seeds.map(|frame| frame.slice(4..)))
}

fn response_header() -> Target {
    let seeds = [
        encode_response(1, 12, &case::<MetadataResponse>(1, 12)),
        encode_response(2, 4, &case::<ApiVersionsResponse>(1, 4)),
        encode_response(3, 0, &case::<MetadataResponse>(1, 0)),
    ];
    let seeds = seeds.map(|frame| frame.expect("they fit").to_bytes().expect("nothing is in a file"));
    Target::new("frame.response", |input, _| {
        let of =
            |version| decode_response_header::<MetadataResponse>(&mut Cursor::new(input.clone()), version);
        let versions = decode_response_header::<ApiVersionsResponse>(&mut Cursor::new(input.clone()), 3);
        [of(0), of(12), versions].iter().map(|read| Says::result(read, |_| 1)).fold(Says::good(0), Says::and)
    })
    .seeds(seeds.map(|frame| frame.slice(4..)))
}

fn metadata_record() -> Target {
    let mut seeds: Vec<Bytes> = Vec::new();
    macro_rules! seed {
        ($($record:ident),*) => {
            $(for seed in 0..4 {
                let record = MetadataRecord::from(case::<$record>(seed, $record::MAX_VERSION));
                seeds.extend(record.encode($record::MAX_VERSION));
            })*
        };
    }
    seed!(TopicRecord, PartitionRecord, PartitionChangeRecord, ConfigRecord, RegisterBrokerRecord);
    seed!(FeatureLevelRecord, UserScramCredentialRecord, AccessControlEntryRecord, RegisterControllerRecord);
    Target::new("frame.metadata-record", |input, _| {
        let read = MetadataRecord::decode(input);
        if let Ok(record) = &read {
            let written = record.encode(record.latest_version());
            assert!(written.is_ok(), "{record:?} was read and cannot be written: {written:?}");
        }
        Says::result(&read, |record| usize::from(record.api_key().cast_unsigned()))
    })
    .seeds(seeds)
    .memory(MEMORY_PER_BYTE, MEMORY_BASE)
}

/// Keys and values as the topics of coordinators hold them.
fn coordinator_record() -> Target {
    macro_rules! read {
        ($input:expr, keys: $($key:ident)*, values: $($value:ident)*) => {{
            let mut says = Says::result(&coordinator_key_type(&$input), |kind| usize::from(kind.cast_unsigned()));
            $(says = says.and(Says::result(&decode_key::<$key>($input.clone()), |_| 1));)*
            $(says = says.and(Says::result(&decode_value::<$value>($input.clone()), |_| 1));)*
            says
        }};
    }
    macro_rules! seeds {
        ($($record:ident)*) => {
            [$(with_version(&case::<$record>(1, 0), 0), with_version(&case::<$record>(2, 0), 0)),*]
        };
    }
    let seeds = seeds!(
        OffsetCommitKey OffsetCommitValue GroupMetadataKey GroupMetadataValue TransactionLogKey
        TransactionLogValue MirrorPositionKey MirrorPositionValue MirrorPartitionStateKey
        MirrorPartitionStateValue MirrorFailoverReportKey MirrorFailoverReportValue MirrorManagedKey
        MirrorGroupReportKey
    );
    Target::new("frame.coordinator-record", |input, _| {
        read!(
            input,
            keys: OffsetCommitKey GroupMetadataKey TransactionLogKey MirrorPositionKey MirrorPartitionStateKey
                MirrorFailoverReportKey MirrorManagedKey MirrorGroupReportKey,
            values: OffsetCommitValue GroupMetadataValue TransactionLogValue MirrorPositionValue
                MirrorPartitionStateValue MirrorFailoverReportValue
        )
    })
    .seeds(seeds.into_iter().flatten())
    .memory(MEMORY_PER_BYTE, MEMORY_BASE)
}
