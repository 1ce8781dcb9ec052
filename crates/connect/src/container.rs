//! Which container of a pod a request is for.

use meta::{ApiError, Value};

/// The container that is named, which must be the pod's, or its only one.
pub(crate) fn choose<'a>(asked: &'a str, pod: &'a Value) -> Result<&'a str, ApiError> {
    let name = pod.str_at(&["metadata", "name"]);
    if !asked.is_empty() {
        if all(pod).any(|container| container == asked) {
            return Ok(asked);
        }
        let message = format!("container {asked} is not valid for pod {name}");
        return Err(ApiError::BadRequest(message));
    }
    match pod.items_at(&["spec", "containers"]) {
        [only] => Ok(only.str_at(&["name"])),
        [] => {
            let message = format!("a container name must be specified for pod {name}");
            Err(ApiError::BadRequest(message))
        }
        _ => {
            let names: Vec<&str> = all(pod).collect();
            let names = names.join(" ");
            Err(ApiError::BadRequest(format!(
                "a container name must be specified for pod {name}, choose one of: [{names}]"
            )))
        }
    }
}

/// Compat: in the order in which kube-apiserver visits them.
fn all(pod: &Value) -> impl Iterator<Item = &str> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |field| pod.items_at(&["spec", field]))
        .map(|container| container.str_at(&["name"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c07_a_container_is_one_of_the_pods() {
        let one = "containers: [{name: app}]";
        let two = "containers: [{name: app}, {name: side}], initContainers: [{name: init}], \
                   ephemeralContainers: [{name: debug}]";
        let cases = [
            (one, "", Ok("app")),
            (one, "app", Ok("app")),
            (one, "../../x", Err("container ../../x is not valid for pod web")),
            (one, "a%2Fb", Err("container a%2Fb is not valid for pod web")),
            (two, "init", Ok("init")),
            (two, "debug", Ok("debug")),
            (
                two,
                "",
                Err(
                    "a container name must be specified for pod web, choose one of: [init app side \
                     debug]",
                ),
            ),
            ("containers: []", "", Err("a container name must be specified for pod web")),
        ];
        for (spec, asked, expected) in cases {
            let pod = format!("{{metadata: {{name: web}}, spec: {{{spec}}}}}");
            let pod = codec::yaml::load(pod.as_bytes()).unwrap().value;
            let chosen = choose(asked, &pod).map_err(|error| error.to_string());
            assert_eq!(chosen, expected.map_err(str::to_owned), "{spec} {asked}");
        }
    }
}
