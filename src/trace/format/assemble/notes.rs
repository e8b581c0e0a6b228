//! What is told of the traces that were assembled.

/// So many ids are named in a line.
const MOST_NAMED: usize = 3;

/// What was found on the way, for the line that is printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    pub traces: u64,
    pub spans: u64,
    /// Spans that were one span exported again.
    pub repeated_spans: u64,
    /// Spans whose parent is not in the trace.
    pub orphans: u64,
    /// Traces whose root is missing.
    pub without_root: u64,
    /// Traces that belong to no session.
    pub without_session: u64,
    /// Traces without any time that have a turn, by which they are ordered.
    pub without_time: u64,
    /// Traces with neither time nor turn: they are ordered by their ids.
    pub without_order: u64,
    /// Traces of which only the end is known.
    pub without_start: u64,
    /// Traces whose spans say that they are of different projects.
    pub several_projects: u64,
    /// The ids of some of them, ascending.
    pub of_several_projects: Vec<String>,
    /// Counts of tokens that are no whole numbers.
    pub odd_counts: u64,
    /// Costs, and sums of costs, that are beyond all numbers.
    pub odd_costs: u64,
    /// Ends before their start.
    pub skewed: u64,
    /// Tool spans made of calls in messages.
    pub calls_of_messages: u64,
    pub tool_calls: u64,
    pub without_input: u64,
    pub without_output: u64,
}

impl Notes {
    pub fn add(&mut self, other: Self) {
        self.traces += other.traces;
        self.spans += other.spans;
        self.repeated_spans += other.repeated_spans;
        self.orphans += other.orphans;
        self.without_root += other.without_root;
        self.without_session += other.without_session;
        self.without_time += other.without_time;
        self.without_order += other.without_order;
        self.without_start += other.without_start;
        self.several_projects += other.several_projects;
        self.of_several_projects.extend(other.of_several_projects);
        self.of_several_projects.sort_unstable();
        self.of_several_projects.truncate(MOST_NAMED);
        self.odd_counts += other.odd_counts;
        self.odd_costs += other.odd_costs;
        self.skewed += other.skewed;
        self.calls_of_messages += other.calls_of_messages;
        self.tool_calls += other.tool_calls;
        self.without_input += other.without_input;
        self.without_output += other.without_output;
    }
}
