//! Profiles of the AWS tools: `~/.aws/credentials` and `~/.aws/config`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a profile says that is of use here.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Profile {
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
    pub session_token: Option<String>,
    pub region: Option<String>,
    pub endpoint_url: Option<String>,
}

type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// Reads the profile that `AWS_PROFILE` names, or `default`. `wants_keys` is false where keys come from elsewhere: then a
/// profile that has none is no fault.
pub(super) fn read(
    variable: &dyn Fn(&str) -> Option<String>,
    wants_keys: bool,
) -> Result<Profile, String> {
    let home = variable("HOME").map(PathBuf::from);
    let file = |name: &str, usual: &str| {
        let named = variable(name).map(PathBuf::from);
        named.or_else(|| Some(home.as_ref()?.join(".aws").join(usual)))
    };
    let credentials = sections(file("AWS_SHARED_CREDENTIALS_FILE", "credentials").as_deref())?;
    let config = sections(file("AWS_CONFIG_FILE", "config").as_deref())?;
    let named = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
    let name = named.clone().unwrap_or_else(|| "default".to_owned());
    let of_config = match name.as_str() {
        "default" => config
            .get("default")
            .or_else(|| config.get("profile default")),
        name => config.get(&format!("profile {name}")),
    };
    let of_credentials = credentials.get(&name);
    if named.is_some() && of_config.is_none() && of_credentials.is_none() {
        return Err(format!(
            "AWS_PROFILE names the profile `{name}`, which neither ~/.aws/credentials nor ~/.aws/config has"
        ));
    }
    let value = |key: &str| {
        let found = of_credentials.and_then(|section| section.get(key));
        found.or_else(|| of_config?.get(key)).cloned()
    };
    let profile = Profile {
        access_key_id: value("aws_access_key_id"),
        secret_access_key: value("aws_secret_access_key"),
        session_token: value("aws_session_token"),
        region: value("region"),
        endpoint_url: value("endpoint_url"),
    };
    const INDIRECT: [&str; 5] = [
        "role_arn",
        "sso_session",
        "sso_start_url",
        "credential_process",
        "login_session",
    ];
    // With keys of its own and a role, the role is meant.
    let indirect = INDIRECT.iter().find(|key| {
        value(key).is_some() && (**key == "role_arn" || profile.access_key_id.is_none())
    });
    if let (true, Some(key)) = (wants_keys, indirect) {
        return Err(format!(
            "the profile `{name}` gets its keys by `{key}`, which is not followed here; give the keys to this command with \
             eval \"$(aws configure export-credentials --profile {name} --format env)\""
        ));
    }
    if profile.access_key_id.is_some() != profile.secret_access_key.is_some() {
        return Err(format!(
            "the profile `{name}` has one of aws_access_key_id and aws_secret_access_key without the other"
        ));
    }
    Ok(profile)
}

/// The sections of a file; none if it is not there.
fn sections(file: Option<&Path>) -> Result<Sections, String> {
    let Some(file) = file else {
        return Ok(Sections::new());
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Sections::new()),
        Err(e) => return Err(format!("`{}` can't be read: {e}", file.display())),
    };
    let mut sections = Sections::new();
    let mut current = String::new();
    for line in text.lines() {
        let trimmed = line.trim();
        // A line that begins with white space belongs to the value before it.
        let nested = line.starts_with([' ', '\t']);
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) || nested {
            continue;
        }
        if let Some(name) = trimmed
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next())
        {
            current = name.split_whitespace().collect::<Vec<_>>().join(" ");
            sections.entry(current.clone()).or_default();
        } else if let Some((key, value)) = trimmed.split_once('=') {
            let value = value.split(" #").next().unwrap_or_default().trim();
            let section = sections.entry(current.clone()).or_default();
            section.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(profile: Option<&str>, wants_keys: bool) -> Result<Profile, String> {
        let home = tempfile::tempdir().unwrap();
        let aws = home.path().join(".aws");
        std::fs::create_dir(&aws).unwrap();
        let credentials = "[default]\naws_access_key_id = AKD\naws_secret_access_key=sd # mine\n\n\
            [night]\naws_access_key_id=AKN\naws_secret_access_key=sn\naws_session_token=tn\n[half]\naws_access_key_id=x\n";
        let config = "[default]\nregion = eu-west-1\n[profile night]\nendpoint_url = http://127.0.0.1:9\nregion=us-west-2\n\
            s3 =\n  region = nowhere\n[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile=default\n[profile sso]\nsso_session=a\n";
        std::fs::write(aws.join("credentials"), credentials).unwrap();
        std::fs::write(aws.join("config"), config).unwrap();
        let home = home.path().display().to_string();
        let variable = |name: &str| match name {
            "HOME" => Some(home.clone()),
            "AWS_PROFILE" => profile.map(str::to_owned),
            _ => None,
        };
        read(&variable, wants_keys)
    }

    #[test]
    fn profiles_are_read_as_the_tools_do() {
        let default = with(None, true).unwrap();
        assert_eq!(default.access_key_id.as_deref(), Some("AKD"));
        assert_eq!(default.secret_access_key.as_deref(), Some("sd"));
        assert_eq!(default.region.as_deref(), Some("eu-west-1"));
        let night = with(Some("night"), true).unwrap();
        assert_eq!(night.session_token.as_deref(), Some("tn"));
        assert_eq!(night.region.as_deref(), Some("us-west-2"));
        assert_eq!(night.endpoint_url.as_deref(), Some("http://127.0.0.1:9"));
    }

    #[test]
    fn profiles_without_keys_are_refused_with_what_to_do() {
        for (profile, told) in [
            ("role", "role_arn"),
            ("sso", "export-credentials --profile sso"),
            ("nobody", "`nobody`"),
            ("half", "without the other"),
        ] {
            let error = with(Some(profile), true).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
        assert!(with(Some("role"), false).is_ok());
    }
}
