//! A pod's quality-of-service class, from the CPU and memory of all its containers.
//!
//! Source of the rule: the API documentation of `status.qosClass` and KEP 2837 for pod-level resources. Must never
//! look at anything but CPU and memory.

use k8s_openapi::api::core::v1::Pod;

use crate::resources::{self, Amounts, Resources};
use crate::spec;

/// A quality-of-service class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Neither requests nor limits anywhere.
    #[default]
    BestEffort,
    /// Everything in between.
    Burstable,
    /// CPU and memory limits in every container, equal to the requests.
    Guaranteed,
}

impl QosClass {
    /// The class of `pod`: what the API server wrote in its status, else what its spec says.
    pub fn of(pod: &Pod) -> Self {
        let stated = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
        stated.and_then(Self::parse).unwrap_or_else(|| Self::from_spec(pod))
    }

    /// The class by the pod's spec alone. Requests that are missing count as equal to the limits.
    pub fn from_spec(pod: &Pod) -> Self {
        let each: Vec<Resources> = match resources::pod_level(pod) {
            Some(whole) => vec![whole],
            None => spec::containers(pod).iter().map(|c| resources::container(c.container)).collect(),
        };
        let positive = |a: Amounts| [a.cpu, a.memory].map(|q| q.filter(|q| !q.is_zero() && !q.is_negative()));
        let nothing = |a: Amounts| positive(a) == [None, None];
        if each.iter().all(|r| nothing(r.requests) && nothing(r.limits)) {
            return Self::BestEffort;
        }
        let full = each.iter().all(|r| positive(r.limits).iter().all(Option::is_some));
        let requests = each.iter().fold(Amounts::default(), |sum, r| sum.plus(r.requests));
        let limits = each.iter().fold(Amounts::default(), |sum, r| sum.plus(r.limits));
        if full && positive(requests) == positive(limits) { Self::Guaranteed } else { Self::Burstable }
    }

    /// Reads the API's text. `None` for text that the API does not know.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "BestEffort" => Some(Self::BestEffort),
            "Burstable" => Some(Self::Burstable),
            "Guaranteed" => Some(Self::Guaranteed),
            _ => None,
        }
    }

    /// The API's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;

    use super::QosClass::{BestEffort, Burstable, Guaranteed};
    use super::*;
    use crate::resources::tests::{container, pod, requirements};

    #[test]
    fn classes() {
        let full = ("cpu=1,memory=1Gi", "cpu=1,memory=1Gi");
        // (app containers as (requests, limits), init containers, class)
        type Each<'a> = &'a [(&'a str, &'a str)];
        let table: &[(Each, Each, QosClass)] = &[
            (&[("", "")], &[], BestEffort),
            (&[("cpu=0", "memory=0")], &[], BestEffort),
            (&[("ephemeral-storage=1Gi", "")], &[], BestEffort),
            (&[full], &[], Guaranteed),
            (&[("", "cpu=1,memory=1Gi")], &[], Guaranteed),
            (&[("cpu=1000m,memory=1024Mi", "cpu=1,memory=1Gi")], &[], Guaranteed),
            (&[full, full], &[full], Guaranteed),
            (&[full, ("", "")], &[], Burstable),
            (&[full], &[("", "")], Burstable),
            (&[("", "")], &[full], Burstable),
            (&[("cpu=500m,memory=1Gi", "cpu=1,memory=1Gi")], &[], Burstable),
            (&[("", "cpu=1")], &[], Burstable),
            (&[("memory=1Mi", "")], &[], Burstable),
        ];
        for (app, init, expected) in table {
            let app = app.iter().map(|(r, l)| container(r, l)).collect();
            let init = init.iter().map(|(r, l)| container(r, l)).collect();
            let pod = pod(app, init);
            assert_eq!(QosClass::from_spec(&pod), *expected, "{pod:?}");
        }
    }

    #[test]
    fn pod_level_resources_alone_decide_and_the_status_wins() {
        let mut p = pod(vec![container("cpu=1", "")], vec![]);
        p.spec.as_mut().unwrap().resources = Some(requirements("", "cpu=1,memory=1Gi"));
        assert_eq!(QosClass::of(&p), Guaranteed);
        p.spec.as_mut().unwrap().containers = vec![container("cpu=500m", "")];
        assert_eq!(QosClass::of(&p), Burstable, "the pod asks for what its containers ask for");
        p.status = Some(PodStatus { qos_class: Some("BestEffort".into()), ..Default::default() });
        assert_eq!(QosClass::of(&p), BestEffort);
    }

    #[test]
    fn names() {
        for class in [BestEffort, Burstable, Guaranteed] {
            assert_eq!(QosClass::parse(class.as_str()), Some(class));
        }
        assert_eq!(QosClass::parse("guaranteed"), None);
    }
}
