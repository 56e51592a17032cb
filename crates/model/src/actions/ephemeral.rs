//! Ephemeral containers: each is started once, whatever the pod's other containers do.

use super::{ContainerStart, Context};
use crate::spec;

pub(super) fn plan(context: &Context<'_>) -> Vec<ContainerStart> {
    let all = spec::ephemeral(context.input.pod);
    let new = all.iter().map(spec::Ephemeral::as_spec).filter(|found| {
        // One that was made and never started is no run, as with any other container.
        !context.input.ephemeral_ran.contains(found.name())
            && context.newest(found.name()).is_none_or(crate::runtime::Container::is_unstarted)
    });
    new.map(|found| context.start(&found, None)).collect()
}
