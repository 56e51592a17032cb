//! Parts that could not be read, counted: on a node with a broken cgroup tree it may be every one.

/// The first problem and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems {
    count: usize,
    first: String,
}

impl Problems {
    /// One more.
    pub(crate) fn add(&mut self, problem: String) {
        if self.count == 0 {
            self.first = problem;
        }
        self.count = self.count.saturating_add(1);
    }

    /// Those of `other` too.
    pub(crate) fn join(mut self, other: &Self) -> Self {
        if self.count == 0 {
            self.first.clone_from(&other.first);
        }
        self.count = self.count.saturating_add(other.count);
        self
    }

    /// How many.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// In one line; `None` when there is none.
    pub(crate) fn summary(&self) -> Option<String> {
        match self.count {
            0 => None,
            1 => Some(format!("statistics are not whole: {}", self.first)),
            count => Some(format!("statistics are not whole: {count} problems, such as {}", self.first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_named_and_all_are_counted() {
        let mut some = Problems::default();
        assert_eq!(some.summary(), None);
        some.add("a".to_owned());
        assert_eq!(some.summary().unwrap(), "statistics are not whole: a");
        let mut more = Problems::default();
        more.add("b".to_owned());
        more.add("c".to_owned());
        assert_eq!(Problems::default().join(&some), some);
        assert_eq!(some.join(&more).summary().unwrap(), "statistics are not whole: 3 problems, such as a");
    }
}
