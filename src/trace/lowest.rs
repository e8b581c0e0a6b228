//! Spans in spans: parents often repeat the sum of what their children count.

/// Cuts each circle of parents at the span of the smallest id, so that every way up ends.
pub(super) fn cut_circles(ids: &[&str], parents: &mut [Option<usize>]) {
    // The walk that met a span.
    let mut met = vec![usize::MAX; parents.len()];
    for start in 0..parents.len() {
        let mut at = start;
        while met[at] == usize::MAX {
            met[at] = start;
            match parents[at] {
                Some(parent) => at = parent,
                None => break,
            }
        }
        if met[at] != start || parents[at].is_none() {
            continue;
        }
        // This walk came back to where it had been: `at` is in a circle.
        let (mut smallest, mut here) = (at, parents[at]);
        while let Some(next) = here.filter(|next| *next != at) {
            if ids[next] < ids[smallest] {
                smallest = next;
            }
            here = parents[next];
        }
        parents[smallest] = None;
    }
}

/// Which spans have something that no span below them has. Parents must be without circles.
pub(super) fn lowest(parents: &[Option<usize>], has: &[bool]) -> Vec<bool> {
    let mut above = vec![false; parents.len()];
    for at in (0..has.len()).filter(|at| has[*at]) {
        let mut parent = parents[at];
        while let Some(at) = parent {
            if std::mem::replace(&mut above[at], true) {
                break;
            }
            parent = parents[at];
        }
    }
    has.iter()
        .zip(above)
        .map(|(has, above)| *has && !above)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_cut_at_one_span_whatever_the_order() {
        let mut parents = vec![Some(1), Some(2), Some(0), Some(0), Some(4), None];
        cut_circles(&["c", "a", "b", "d", "e", "f"], &mut parents);
        assert_eq!(parents, [Some(1), None, Some(0), Some(0), None, None]);
        let mut other = vec![Some(2), Some(0), Some(1)];
        cut_circles(&["a", "c", "b"], &mut other);
        assert_eq!(other, [None, Some(0), Some(1)]);
    }

    #[test]
    fn only_the_lowest_count() {
        let parents = [None, Some(0), Some(1), Some(0), None];
        let has = [true, true, false, true, true];
        assert_eq!(lowest(&parents, &has), [false, true, false, true, true]);
    }
}
