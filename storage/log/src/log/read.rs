//! Reading: which bytes answer a fetch, and which transactions in them were aborted.
//!
//! Where the bytes are is looked up in indexes and batch headers. A core looks at what memory has of them; what it
//! has not is looked up by a [`ReadSearch`], which takes a copy of what the log knows and runs on any thread.

use tarn_record::{HEADER_BYTES, Offset};

use super::Log;
use crate::disk::ReadFrom;
use crate::error::{LogError, ReadError};
use crate::read_plan::{FileSlice, FirstBatch, ReadPlan};
use crate::segment::txn_index::{AbortedTransaction, TxnIndex};
use crate::segment::{Found, SegmentView};

/// What is to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOrder {
    /// The first offset.
    pub from: Offset,
    /// About how many bytes.
    pub max_bytes: usize,
    /// Whether the first batch may exceed them.
    pub first_batch: FirstBatch,
    /// The offset before which the batches have to end.
    pub upper: Offset,
    /// Whether the aborted transactions are to be named.
    pub aborted: Aborted,
}

/// Whether a read is to name the aborted transactions that touch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aborted {
    /// A reader of committed records has to leave them out.
    Named,
    /// The reader takes everything.
    Unnamed,
}

/// What a read has found.
#[derive(Clone, Debug)]
pub struct Read {
    /// The bytes.
    pub plan: ReadPlan,
    /// The aborted transactions that touch them; none where they were not to be named.
    pub aborted: Vec<AbortedTransaction>,
}

/// A read that has to wait for the disk, ready to run.
#[derive(Debug)]
#[must_use = "nothing is found until it is run"]
pub struct ReadSearch {
    order: ReadOrder,
    generation: u64,
    pieces: Vec<OwnedPiece>,
    unnoted: Vec<AbortedTransaction>,
}

/// The search for the aborted transactions that touch a range of offsets, ready to run.
#[derive(Debug)]
#[must_use = "nothing is found until it is run"]
pub struct AbortedSearch {
    range: (Offset, Offset),
    pieces: Vec<OwnedPiece>,
    unnoted: Vec<AbortedTransaction>,
}

#[derive(Debug)]
struct OwnedPiece {
    view: SegmentView,
    end: Offset,
    aborted: Option<TxnIndex>,
}

/// A segment as a read sees it.
#[derive(Clone, Copy)]
struct Piece<'a> {
    view: &'a SegmentView,
    end: Offset,
    aborted: Option<&'a TxnIndex>,
}

impl Log {
    /// Plans a read from `from` on: whole batches below `upper`, about `max_bytes` of them; the last may
    /// be cut short. A first batch that may be larger is returned whole, however large it is; one that must
    /// fit and does not gives an empty plan. Waits for the disk.
    ///
    /// # Errors
    /// `OutOfRange` below the log start and above the log end; or the disk's refusal.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        first_batch: FirstBatch,
        upper: Offset,
    ) -> Result<ReadPlan, ReadError> {
        let order = ReadOrder { from, max_bytes, first_batch, upper, aborted: Aborted::Unnamed };
        Ok(self.read_from(&order, ReadFrom::Disk)?.plan)
    }

    /// The same for an order.
    ///
    /// # Errors
    /// As for [`Log::read`]; from memory also one that [is cold](LogError::is_cold), and the kernel has begun to read
    /// what was missing.
    pub fn read_from(&self, order: &ReadOrder, source: ReadFrom) -> Result<Read, ReadError> {
        if !self.has_offset(order.from) {
            return Err(ReadError::OutOfRange { asked: order.from, start: self.start, end: self.end });
        }
        let order = ReadOrder { upper: order.upper.min(self.end), ..*order };
        let pieces = self.pieces(order.from);
        Ok(Reader { pieces, unnoted: &self.unnoted_aborts, order, generation: self.generation, source }
            .read()?)
    }

    /// The same read, of the log as it is now, for another thread.
    pub fn read_search(&self, order: &ReadOrder) -> ReadSearch {
        let order = ReadOrder { upper: order.upper.min(self.end), ..*order };
        let names_aborted =
            order.aborted == Aborted::Named && self.pieces(order.from).any(|piece| piece.aborted.is_some());
        // The offset may lie in a gap at the end of the first; the next one with a batch has it then.
        let mut wanted = order.max_bytes.max(1);
        let is_read = |(number, piece): &(usize, Piece<'_>)| {
            let is_wanted = wanted > 0;
            if *number > 0 {
                wanted = wanted.saturating_sub(piece.view.size as usize);
            }
            is_wanted || names_aborted
        };
        let pieces = self.pieces(order.from).enumerate().take_while(is_read);
        ReadSearch {
            pieces: pieces.map(|(_, piece)| OwnedPiece::of(&piece)).collect(),
            unnoted: self.unnoted_aborts.clone(),
            generation: self.generation,
            order,
        }
    }

    /// The aborted transactions that touch the offsets from `from` up to, not including, `upper`. Waits for the disk.
    ///
    /// # Errors
    /// Where a transaction index cannot be read or is damaged.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        aborted_between(self.pieces(from), &self.unnoted_aborts, (from, upper), ReadFrom::Disk)
    }

    /// The same for another thread.
    pub fn search_aborted(&self, from: Offset, upper: Offset) -> AbortedSearch {
        let pieces = self.pieces(from).filter(|piece| piece.aborted.is_some());
        AbortedSearch {
            range: (from, upper),
            pieces: pieces.map(|piece| OwnedPiece::of(&piece)).collect(),
            unnoted: self.unnoted_aborts.clone(),
        }
    }

    /// The segments from the one on that holds `from`.
    fn pieces(&self, from: Offset) -> impl Iterator<Item = Piece<'_>> + Clone {
        let first = self.segment_of(from);
        self.segments.iter().enumerate().skip(first).map(|(index, segment)| Piece {
            view: segment.view(),
            end: self.segment_end(index),
            aborted: segment.txn_index(),
        })
    }
}

impl ReadSearch {
    /// Reads.
    ///
    /// # Errors
    /// Where a file cannot be read: also when its offsets were removed meanwhile.
    pub fn run(self) -> Result<Read, LogError> {
        let (pieces, generation, source) = (&self.pieces, self.generation, ReadFrom::Disk);
        let pieces = pieces.iter().map(OwnedPiece::piece);
        Reader { pieces, unnoted: &self.unnoted, order: self.order, generation, source }.read()
    }
}

impl AbortedSearch {
    /// Reads the transaction indexes.
    ///
    /// # Errors
    /// As for [`Log::aborted_transactions`].
    pub fn run(self) -> Result<Vec<AbortedTransaction>, LogError> {
        let pieces = self.pieces.iter().map(OwnedPiece::piece);
        aborted_between(pieces, &self.unnoted, self.range, ReadFrom::Disk)
    }
}

impl OwnedPiece {
    fn of(piece: &Piece<'_>) -> OwnedPiece {
        OwnedPiece { view: piece.view.clone(), end: piece.end, aborted: piece.aborted.cloned() }
    }

    fn piece(&self) -> Piece<'_> {
        Piece { view: &self.view, end: self.end, aborted: self.aborted.as_ref() }
    }
}

/// One read of consecutive segments, the first of which holds the first offset.
struct Reader<'a, P> {
    pieces: P,
    unnoted: &'a [AbortedTransaction],
    order: ReadOrder,
    generation: u64,
    source: ReadFrom,
}

impl<'a, P: Iterator<Item = Piece<'a>> + Clone> Reader<'a, P> {
    fn read(self) -> Result<Read, LogError> {
        let plan = self.plan()?;
        let aborted = match self.order.aborted {
            Aborted::Named => self.aborted_in(&plan)?,
            Aborted::Unnamed => Vec::new(),
        };
        Ok(Read { plan, aborted })
    }

    fn plan(&self) -> Result<ReadPlan, LogError> {
        let ReadOrder { from, max_bytes, first_batch, upper, .. } = self.order;
        // Without room for a batch there is nothing to look for.
        let is_full = max_bytes < HEADER_BYTES && first_batch == FirstBatch::MustFit;
        let mut pieces = self.pieces.clone();
        if from >= upper || is_full {
            return Ok(ReadPlan::empty(from));
        }
        let Some((piece, first)) = self.first(&mut pieces)? else { return Ok(ReadPlan::empty(from)) };
        let first_bytes = first.header.size();
        let budget = match first_batch {
            FirstBatch::MayBeLarger => max_bytes.max(first_bytes),
            FirstBatch::MustFit => max_bytes,
        };
        if first.header.last_offset() >= upper || first_bytes > budget {
            return Ok(ReadPlan::empty(from));
        }
        self.plan_from(piece, pieces, &first, budget)
    }

    /// The first batch that ends at the first offset or above, and its segment.
    fn first(&self, pieces: &mut P) -> Result<Option<(Piece<'a>, Found)>, LogError> {
        for piece in pieces {
            if let Some(found) = piece.view.locate_from(self.order.from, self.source)? {
                return Ok(Some((piece, found)));
            }
        }
        Ok(None)
    }

    /// The plan that begins with a batch that was found.
    fn plan_from(
        &self,
        mut piece: Piece<'a>,
        mut rest: P,
        first: &Found,
        budget: usize,
    ) -> Result<ReadPlan, LogError> {
        let upper = self.order.upper;
        let mut plan = ReadPlan::empty(first.header.base_offset);
        plan.first_batch_bytes = first.header.size();
        let mut begin = first.position;
        loop {
            let size = u64::from(piece.view.size);
            let end = if piece.end > upper {
                piece.view.locate_from(upper, self.source)?.map_or(size, |beyond| beyond.position)
            } else {
                size
            };
            let len = end.saturating_sub(begin).min((budget - plan.bytes) as u64);
            if len > 0 {
                plan.slices.push(FileSlice::new(
                    piece.view.file().clone(),
                    begin,
                    len as u32,
                    self.generation,
                ));
                plan.bytes += len as usize;
            }
            match rest.next() {
                Some(next) if piece.end < upper && plan.bytes < budget => (piece, begin) = (next, 0),
                _ => return Ok(plan),
            }
        }
    }

    /// The aborted transactions that touch what a plan reads.
    fn aborted_in(&self, plan: &ReadPlan) -> Result<Vec<AbortedTransaction>, LogError> {
        let has_some = || self.pieces.clone().any(|piece| piece.aborted.is_some());
        match plan.slices.last() {
            Some(last) if !self.unnoted.is_empty() || has_some() => {
                let range = (self.order.from, self.end_of(last)?);
                aborted_between(self.pieces.clone(), self.unnoted, range, self.source)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Where the batch begins that follows the slice, or its segment ends.
    fn end_of(&self, slice: &FileSlice) -> Result<Offset, LogError> {
        let end = slice.position() + u64::from(slice.len());
        let mut pieces = self.pieces.clone();
        let Some(piece) = pieces.find(|piece| piece.view.base() == slice.base()) else {
            return Ok(self.order.upper);
        };
        let next = piece.view.locate_position(end, self.source)?;
        Ok(next.map_or(piece.end, |next| next.header.base_offset))
    }
}

/// The aborted transactions that touch the offsets of a range whose end is not in it.
fn aborted_between<'a>(
    pieces: impl Iterator<Item = Piece<'a>>,
    unnoted: &[AbortedTransaction],
    (from, upper): (Offset, Offset),
    source: ReadFrom,
) -> Result<Vec<AbortedTransaction>, LogError> {
    let mut aborted = Vec::new();
    for index in pieces.filter_map(|piece| piece.aborted) {
        let collected = index.collect(from, upper, source)?;
        aborted.extend(collected.transactions);
        if collected.complete {
            return Ok(aborted);
        }
    }
    let touches = |entry: &&AbortedTransaction| entry.last_offset >= from && entry.first_offset < upper;
    aborted.extend(unnoted.iter().filter(touches));
    Ok(aborted)
}
