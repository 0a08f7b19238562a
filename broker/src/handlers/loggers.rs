//! The levels of this broker's loggers: BROKER_LOGGER in DescribeConfigs and IncrementalAlterConfigs (KIP-412).
//!
//! They are this process's own: nothing of them is in the metadata, and a restart forgets them.

use std::collections::BTreeSet;
use std::rc::Rc;

use tarn_image::ResourceType;
use tarn_quorum::decide::ApiError;
use tarn_quorum::decide::alter_configs::{Operation, operations};
use tarn_wire::ErrorCode;
use tarn_wire::messages::describe_configs_response::DescribeConfigsResourceResult;
use tarn_wire::messages::incremental_alter_configs_request::AlterConfigsResource;

use crate::core::Core;
use crate::loggers::{LevelChange, LogLevel, ROOT};

/// The source of a logger's level, as the protocol numbers it.
const DYNAMIC_BROKER_LOGGER: i8 = 6;

/// Every logger that is asked for, as the line of a configuration.
///
/// # Errors
/// Where another broker is meant, or none.
pub(super) fn describe(
    core: &Rc<Core>,
    broker: &str,
) -> Result<Vec<DescribeConfigsResourceResult>, (ErrorCode, String)> {
    let own = core.node().broker_id().to_string();
    let invalid = |why: String| Err((ErrorCode::INVALID_REQUEST, why));
    if broker.is_empty() {
        return invalid("Broker id must not be empty".to_owned());
    }
    if broker.parse::<i32>().is_err() {
        return invalid(format!("Broker id must be an integer, but it is: {broker}"));
    }
    if broker != own {
        return invalid(format!("Unexpected broker id, expected {own}, but received {broker}"));
    }
    let described = |(name, level): (String, LogLevel)| DescribeConfigsResourceResult {
        name: name.as_str().into(),
        value: Some(level.name().into()),
        config_source: DYNAMIC_BROKER_LOGGER,
        ..DescribeConfigsResourceResult::default()
    };
    Ok(core.node().loggers().all().into_iter().map(described).collect())
}

/// Whether changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// They are.
    Real,
    /// They are only checked.
    Dry,
}

/// Changes the levels of loggers, all of one resource or none.
///
/// # Errors
/// What is wrong, in Kafka's words.
pub(super) fn alter(core: &Rc<Core>, asked: &AlterConfigsResource, run: Run) -> Result<(), ApiError> {
    let operations = operations(&asked.configs)?;
    let invalid = |why: String| Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
    let (own, name) = (core.node().broker_id().0, &*asked.resource_name);
    match name.parse::<i32>() {
        Err(_) => return invalid(format!("Node id must be an integer, but it is: {name}")),
        Ok(id) if id != own => {
            return invalid(format!("Unexpected node id. Expected {own}, but received {id}"));
        }
        Ok(_) => {}
    }
    let loggers = core.node().loggers();
    let known: BTreeSet<String> = loggers.all().into_iter().map(|(name, _)| name).collect();
    let changes: Vec<LevelChange> =
        operations.into_iter().map(|operation| checked(&known, operation)).collect::<Result<_, _>>()?;
    if run == Run::Real {
        loggers.change(&changes);
    }
    Ok(())
}

fn checked(
    known: &BTreeSet<String>,
    (logger, operation, value): (&str, Operation, &str),
) -> Result<LevelChange, ApiError> {
    let invalid = |why: String| Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
    let of_loggers = ResourceType::BROKER_LOGGER;
    match operation {
        Operation::Append => {
            return invalid(format!("APPEND operation is not allowed for the {of_loggers} resource"));
        }
        Operation::Subtract => {
            return invalid(format!("SUBTRACT operation is not allowed for the {of_loggers} resource"));
        }
        Operation::Set | Operation::Delete => {}
    }
    if !known.contains(logger) {
        return Err(ApiError::new(ErrorCode::INVALID_CONFIG, format!("Logger {logger} does not exist!")));
    }
    if operation == Operation::Delete {
        return match logger {
            ROOT => invalid(format!("Removing the log level of the {ROOT} logger is not allowed")),
            logger => Ok(LevelChange::Delete(logger.to_owned())),
        };
    }
    match LogLevel::SETTABLE.into_iter().find(|level| level.name() == value) {
        Some(level) => Ok(LevelChange::Set(logger.to_owned(), level)),
        None => {
            let levels: Vec<&str> = LogLevel::SETTABLE.iter().map(|level| level.name()).collect();
            let why = format!(
                "Cannot set the log level of {logger} to {value} as it is not a supported log level. \
                 Valid log levels are {}",
                levels.join(", ")
            );
            Err(ApiError::new(ErrorCode::INVALID_CONFIG, why))
        }
    }
}
