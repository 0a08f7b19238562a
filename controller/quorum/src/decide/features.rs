//! UpdateFeatures: the finalized levels of features.
//!
//! A request changes all that it names or nothing, and only to levels that every registered node serves.

use std::collections::BTreeSet;

use tarn_image::features::{METADATA_VERSION, MIRROR_VERSION, SUPPORTED};
use tarn_image::{MetadataImage, ResourceType};
use tarn_wire::messages::update_features_request::FeatureUpdateKey;
use tarn_wire::messages::update_features_response::UpdatableFeatureResult;
use tarn_wire::messages::{FeatureLevelRecord, UpdateFeaturesRequest, UpdateFeaturesResponse};
use tarn_wire::{ErrorCode, MetadataRecord, Str};

use super::{ApiError, Decision, Run};

/// What a client allows to be done with a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
}

/// Decides a whole request.
pub fn update_features(
    image: &MetadataImage,
    request: &UpdateFeaturesRequest,
) -> Decision<UpdateFeaturesResponse> {
    let mut records = Vec::new();
    for asked in &request.feature_updates {
        match update(image, asked) {
            Ok(record) => records.push(record),
            Err(error) => return refuse(request, asked, &error),
        }
    }
    let names: BTreeSet<&str> = request.feature_updates.iter().map(|asked| asked.feature.as_str()).collect();
    if names.len() < request.feature_updates.len() {
        let error = ApiError::new(ErrorCode::INVALID_REQUEST, "Each feature must appear at most once.");
        return Decision::unchanged(UpdateFeaturesResponse {
            error_code: error.code.0,
            error_message: error.wire_message(),
            ..UpdateFeaturesResponse::default()
        });
    }
    let results = request.feature_updates.iter().map(|asked| UpdatableFeatureResult {
        feature: asked.feature.clone(),
        ..UpdatableFeatureResult::default()
    });
    let response = UpdateFeaturesResponse { results: results.collect(), ..UpdateFeaturesResponse::default() };
    Decision::of(records, response).carried_out(Run::of(request.validate_only))
}

/// Nothing changes: one of the features has an error, and with it all of them.
fn refuse(
    request: &UpdateFeaturesRequest,
    refused: &FeatureUpdateKey,
    error: &ApiError,
) -> Decision<UpdateFeaturesResponse> {
    let why = error.message.clone().unwrap_or_default();
    let of_all =
        format!("The update failed for all features since the following feature had an error: {why}");
    let results = request.feature_updates.iter().map(|asked| {
        let is_it = asked.feature == refused.feature;
        let (code, why) = if is_it { (error.code, &why) } else { (ErrorCode::INVALID_REQUEST, &of_all) };
        UpdatableFeatureResult {
            feature: asked.feature.clone(),
            error_code: code.0,
            error_message: Some(Str::from(why.as_str())),
        }
    });
    Decision::unchanged(UpdateFeaturesResponse {
        error_code: error.code.0,
        results: results.collect(),
        error_message: Some(of_all.into()),
        ..UpdateFeaturesResponse::default()
    })
}

fn update(image: &MetadataImage, asked: &FeatureUpdateKey) -> Result<MetadataRecord, ApiError> {
    let (name, level) = (&*asked.feature, asked.max_version_level);
    let refuse = |why: String| {
        let why = format!("Invalid update version {level} for feature {name}. {why}");
        Err(ApiError::new(ErrorCode::INVALID_UPDATE_VERSION, why))
    };
    let Some(allowed) = allowed(asked) else {
        return refuse("The controller does not support the given upgrade type.".to_owned());
    };
    if level < 0 {
        return refuse("A feature version cannot be less than 0.".to_owned());
    }
    if let Some(why) = not_served(image, name, level) {
        return refuse(why);
    }
    let current = image.features().level(name);
    if level < current && allowed == Allowed::Upgrade {
        return refuse(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or \
             unsafe downgrade."
                .to_owned(),
        );
    }
    if level > current && allowed != Allowed::Upgrade {
        return refuse("Can't downgrade to a newer version.".to_owned());
    }
    if name == METADATA_VERSION && level < current {
        let why = format!(
            "Invalid metadata.version {level}. Refusing to perform the requested downgrade because it might \
             delete metadata information."
        );
        return Err(ApiError::new(ErrorCode::INVALID_UPDATE_VERSION, why));
    }
    let mirrors = image.configs().resources(ResourceType::CLUSTER_MIRROR).count();
    if name == MIRROR_VERSION && level == 0 && mirrors > 0 {
        return refuse(format!("There are {mirrors} cluster mirrors, which need it; delete them first."));
    }
    Ok(FeatureLevelRecord { name: asked.feature.to_owned_str(), feature_level: level }.into())
}

/// What the client allows; `None` for what is none. Before version 1 there was a field of its own for it.
fn allowed(asked: &FeatureUpdateKey) -> Option<Allowed> {
    match asked.upgrade_type {
        1 if asked.allow_downgrade => Some(Allowed::SafeDowngrade),
        1 => Some(Allowed::Upgrade),
        2 => Some(Allowed::SafeDowngrade),
        3 => Some(Allowed::UnsafeDowngrade),
        _ => None,
    }
}

/// Which node does not serve a feature at this level, in a sentence; `None` where all do.
fn not_served(image: &MetadataImage, name: &str, level: i16) -> Option<String> {
    let supported = SUPPORTED.iter().find(|feature| feature.name == name);
    let of_brokers = image
        .registrations()
        .brokers()
        .map(|broker| (format!("Broker {}", broker.id), broker.supports(name)));
    let own = ("Local controller".to_owned(), supported.map(|feature| (feature.min, feature.max)));
    std::iter::once(own).chain(of_brokers).find_map(|(node, range)| match range {
        None if level == 0 => None,
        None => Some(format!("{node} does not support this feature.")),
        // Level 0 turns a feature off, but for the one without which there is no record.
        Some(_) if level == 0 && name != METADATA_VERSION => None,
        Some((min, max)) if (min..=max).contains(&level) => None,
        Some((min, max)) => Some(format!("{node} only supports versions {min}-{max}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;
    use tarn_image::features::METADATA_VERSION_LATEST;

    const INVALID: i16 = ErrorCode::INVALID_UPDATE_VERSION.0;

    #[test]
    fn a_feature_changes_to_a_level_that_every_node_serves() {
        let mut world = World::with_brokers(2);
        assert_eq!(update(&mut world, &[(MIRROR_VERSION, 1, 1)]), (0, String::new()));
        assert_eq!(world.image.features().level(MIRROR_VERSION), 1);
        let (code, why) = update(&mut world, &[(MIRROR_VERSION, 2, 1)]);
        assert_eq!(code, INVALID);
        assert!(why.ends_with("Local controller only supports versions 0-1"), "{why}");
        let (code, why) = update(&mut world, &[("share.version", 1, 1)]);
        assert!(code == INVALID && why.ends_with("Local controller does not support this feature."), "{why}");
    }

    #[test]
    fn a_feature_goes_down_only_where_that_is_allowed_and_nothing_needs_it() {
        let mut world = World::with_brokers(1);
        update(&mut world, &[(MIRROR_VERSION, 1, 1)]);
        assert_eq!(update(&mut world, &[(MIRROR_VERSION, 0, 1)]).0, INVALID);
        world
            .create_mirror("m", &[("bootstrap.servers", "a:9092"), ("source.cluster.id", "s")])
            .expect("it is a good one");
        let (code, why) = update(&mut world, &[(MIRROR_VERSION, 0, 2)]);
        assert!(code == INVALID && why.contains("1 cluster mirrors"), "{why}");
        assert_eq!(world.image.features().level(MIRROR_VERSION), 1);
        assert_eq!(update(&mut world, &[(MIRROR_VERSION, 1, 3)]).0, 0, "it has it already");
        assert_eq!(update(&mut world, &[(MIRROR_VERSION, 1, 9)]).0, INVALID, "there is no such type");
    }

    #[test]
    fn where_one_feature_is_refused_nothing_changes() {
        let mut world = World::with_brokers(1);
        let both = [(MIRROR_VERSION, 1, 1), (METADATA_VERSION, METADATA_VERSION_LATEST + 1, 1)];
        let (code, why) = update(&mut world, &both);
        assert_eq!(code, INVALID);
        assert!(why.contains("since the following feature had an error"), "{why}");
        assert_eq!(world.image.features().level(MIRROR_VERSION), 0);
        assert_eq!(update(&mut world, &[(MIRROR_VERSION, 1, 1), (MIRROR_VERSION, 1, 1)]).0, 42);
    }

    fn update(world: &mut World, asked: &[(&str, i16, i8)]) -> (i16, String) {
        let updates = asked.iter().map(|&(feature, max_version_level, upgrade_type)| FeatureUpdateKey {
            feature: feature.into(),
            max_version_level,
            upgrade_type,
            ..FeatureUpdateKey::default()
        });
        let request =
            UpdateFeaturesRequest { feature_updates: updates.collect(), ..UpdateFeaturesRequest::default() };
        let decision = update_features(&world.image, &request);
        let response = world.apply(decision);
        (response.error_code, response.error_message.map(|why| why.to_string()).unwrap_or_default())
    }
}
