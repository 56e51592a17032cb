use std::os::unix::fs::PermissionsExt;

use super::*;

struct Bench {
    dir: tempfile::TempDir,
    providers: Providers,
}

/// A provider `p` for `*.io` whose program is this script; `$CALLS` is a file of its own.
fn bench(script: &str) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("p");
    std::fs::write(&program, format!("#!/bin/sh\ncat >> \"$CALLS\"; echo >> \"$CALLS\"\n{script}\n"))
        .unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
         - name: p\n  apiVersion: {VERSION}\n  matchImages: ['*.io']\n  defaultCacheDuration: 10m\n  args: [get]\n\
         \x20 env: [{{name: CALLS, value: {}}}]\n",
        dir.path().join("calls").display()
    );
    let config = dir.path().join("config.yaml");
    std::fs::write(&config, text).unwrap();
    let providers = Providers::load(&config, dir.path()).unwrap();
    Bench { dir, providers }
}

fn answer(key: &str, duration: &str) -> String {
    format!(
        "echo '{{\"apiVersion\": \"{VERSION}\", \"kind\": \"CredentialProviderResponse\", \"cacheKeyType\": \"{key}\", \
         {duration} \"auth\": {{\"*.io\": {{\"username\": \"'$1'\", \"password\": \"hunter2\"}}}}}}'"
    )
}

impl Bench {
    async fn ask(&self, image: &str) -> Vec<Result<Vec<String>, String>> {
        let image = ImageRef::parse(image).unwrap();
        let answers = self.providers.ask(&image).await;
        let users = |keyring: Keyring| keyring.matching(&image).map(|auth| auth.to_wire().username).collect();
        answers.into_iter().map(|answer| answer.map(users)).collect()
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn a_provider_is_asked_for_its_images_and_remembered_as_it_says() {
    for (key, images, calls) in [
        ("Image", ["r.io/a:1", "r.io/a:2", "r.io/b"], 2),
        ("Registry", ["r.io/a", "r.io/b", "q.io/b"], 2),
        ("Global", ["r.io/a", "r.io/b", "q.io/b"], 1),
    ] {
        let bench = bench(&answer(key, ""));
        for image in images {
            assert_eq!(bench.ask(image).await, [Ok(vec!["get".to_owned()])], "{key} {image}");
        }
        assert_eq!(bench.calls().len(), calls, "{key}");
        assert_eq!(bench.ask("r.org/a").await, [], "none of its images");
    }
    let bench = bench(&answer("Global", "\"cacheDuration\": \"0s\","));
    bench.ask("r.io/a").await;
    bench.ask("r.io/a").await;
    let request =
        format!(r#"{{"apiVersion":"{VERSION}","kind":"CredentialProviderRequest","image":"r.io/a"}}"#);
    assert_eq!(bench.calls(), [request.clone(), request], "what is good for no time is asked for again");
}

#[tokio::test]
async fn what_goes_wrong_is_told_without_the_programs_words() {
    for script in [
        "echo hunter2; exit 3",
        "echo hunter2",
        "echo '{\"apiVersion\": \"x\", \"kind\": \"hunter2\"}'",
        "head -c 2000000 /dev/zero",
        "kill -9 $$",
    ] {
        let bench = bench(script);
        let answers = bench.ask("r.io/a").await;
        let [Err(reason)] = answers.as_slice() else { panic!("{script}: {answers:?}") };
        assert!(reason.starts_with("credential provider p: ") && !reason.contains("hunter2"), "{reason}");
    }
    let bench = bench("true");
    std::fs::remove_file(bench.dir.path().join("p")).unwrap();
    assert!(bench.ask("r.io/a").await.first().is_some_and(Result::is_err));
}

#[test]
fn a_configuration_that_is_wrong_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("p"), "").unwrap();
    let parse = |text: &str| {
        let head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n";
        config::parse(&format!("{head}{text}"), dir.path()).map(|providers| providers.len())
    };
    let good = format!("{{name: p, apiVersion: {VERSION}, matchImages: [r.io], defaultCacheDuration: 1h}}");
    assert_eq!(parse(&format!("providers: [{good}]")), Ok(1));
    for (entry, word) in [
        (format!("{good}, {good}"), "two providers"),
        (good.replace("name: p", "name: ../p"), "name"),
        (good.replace("name: p", "name: q"), "no program"),
        (good.replace("k8s.io/v1", "k8s.io/v9"), "apiVersion"),
        (good.replace("[r.io]", "[]"), "matchImages"),
        (good.replace("[r.io]", "['https://']"), "matchImages"),
        (good.replace("1h", "soon"), "defaultCacheDuration"),
        (good.replace("}", ", tokenAttributes: {}}"), "tokenAttributes"),
        (good.replace("}", ", odd: 1}"), "odd"),
    ] {
        let error = parse(&format!("providers: [{entry}]")).unwrap_err();
        assert!(error.contains(word), "{entry}: {error}");
    }
    assert!(
        parse("providers: []").is_err() && config::parse("kind: Pod\napiVersion: v1", dir.path()).is_err()
    );
}

#[test]
fn durations() {
    for (text, seconds) in [
        ("12h", Some(43_200.0)),
        ("1h30m", Some(5400.0)),
        ("500ms", Some(0.5)),
        ("0s", Some(0.0)),
        ("0", Some(0.0)),
        ("1.5s", Some(1.5)),
        ("", None),
        ("1", None),
        ("h", None),
        ("-1s", None),
        ("1d", None),
        ("99999999h", Some(604_800.0)),
    ] {
        assert_eq!(config::duration(text).map(|duration| duration.as_secs_f64()), seconds, "{text}");
    }
}
