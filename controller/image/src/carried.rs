//! Records whose meaning is not read here yet: they are kept as they are, by what identifies them, so that a
//! snapshot holds them and their removal is honoured.

use imbl::OrdMap;
use tarn_wire::messages::ClientQuotaRecord;
use tarn_wire::metadata::MetadataRecord;
use uuid::Uuid;

/// What identifies a carried record, in the order that a snapshot has them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    ClientQuota(Vec<(String, Option<String>)>, String),
    AccessControlEntry(Uuid),
    UserScramCredential(String, i8),
    DelegationToken(String),
}

/// Quotas, access control entries, credentials and tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Carried {
    records: OrdMap<Identity, MetadataRecord>,
}

impl Carried {
    /// Keeps or removes what the record is about; false for a record of another kind.
    pub(crate) fn apply(&mut self, record: &MetadataRecord) -> bool {
        let removed = match record {
            MetadataRecord::ClientQuota(quota) if quota.remove => quota_identity(quota),
            MetadataRecord::RemoveAccessControlEntry(entry) => Identity::AccessControlEntry(entry.id),
            MetadataRecord::RemoveUserScramCredential(credential) => {
                Identity::UserScramCredential(credential.name.to_string(), credential.mechanism)
            }
            MetadataRecord::RemoveDelegationToken(token) => {
                Identity::DelegationToken(token.token_id.to_string())
            }
            _ => return self.keep(record),
        };
        self.records.remove(&removed);
        true
    }

    fn keep(&mut self, record: &MetadataRecord) -> bool {
        let kept = match record {
            MetadataRecord::ClientQuota(quota) => quota_identity(quota),
            MetadataRecord::AccessControlEntry(entry) => Identity::AccessControlEntry(entry.id),
            MetadataRecord::UserScramCredential(credential) => {
                Identity::UserScramCredential(credential.name.to_string(), credential.mechanism)
            }
            MetadataRecord::DelegationToken(token) => Identity::DelegationToken(token.token_id.to_string()),
            _ => return false,
        };
        self.records.insert(kept, record.clone());
        true
    }

    /// The quotas, which a snapshot has before the producer ids.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = &MetadataRecord> {
        self.records.iter().filter(|(identity, _)| is_quota(identity)).map(|(_, record)| record)
    }

    /// The rest, which a snapshot has after the producer ids.
    pub(crate) fn after_producer_ids(&self) -> impl Iterator<Item = &MetadataRecord> {
        self.records.iter().filter(|(identity, _)| !is_quota(identity)).map(|(_, record)| record)
    }
}

fn is_quota(identity: &Identity) -> bool {
    matches!(identity, Identity::ClientQuota(..))
}

fn quota_identity(quota: &ClientQuotaRecord) -> Identity {
    let mut entity: Vec<_> = quota
        .entity
        .iter()
        .map(|part| (part.entity_type.to_string(), part.entity_name.as_ref().map(|name| name.to_string())))
        .collect();
    entity.sort();
    Identity::ClientQuota(entity, quota.key.to_string())
}
