//! Rules that may be left out on purpose, to see which checker notices.

/// A rule left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Broken {
    #[default]
    Nothing,
    /// The gate is taken for closed long before the owning core closes it.
    GateNotClosed,
    /// What was asked for under an earlier opening of the gate is appended.
    StaleGenerationAccepted,
    /// A STOPPED is taken for one of the binding's version, whichever it was written for.
    OldStopBelieved,
    /// What is not known of a partition that is to be stopped is taken for STOPPED.
    UnknownTakenForStopped,
    /// Flushes reach no medium.
    FlushSkipped,
    /// The position of a stop that has begun is forgotten, and another one taken.
    PositionWrittenAgain,
    /// A restart forgets which transactions are open.
    MarkerLeftOut,
    /// A report has none of the transactions that an earlier try has aborted.
    AbortedForgotten,
    /// What a lane knew of the source is forgotten when the partition leaves it.
    KnownForgotten,
    /// STOPPED is written before the log is ended.
    StoppedBeforeEnd,
    /// A stop waits for its source.
    StopWaitsForSource,
    /// A failure is written down, and why is not.
    ReasonForgotten,
    /// The log here is taken for a beginning of the source's.
    NotCompared,
    /// The common point is taken to be one offset higher than it is.
    CommonPointTooHigh,
    /// What only this log has is dropped whether or not the operator allows it.
    ConsentNotAsked,
    /// A consent is used for as long as its version lasts.
    ConsentKept,
    /// A log is cut, and the copy of what it loses is not kept.
    ExportSkipped,
    /// A log is cut while the copy of what it loses is not on the medium.
    ExportNotSynced,
    /// An export that failed does not hold up the cut.
    FailedExportIgnored,
    /// What was exported is not written down with MIRRORING.
    NoticeForgotten,
}
