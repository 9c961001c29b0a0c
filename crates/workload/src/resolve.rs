//! From what a user typed to a workload: a generator, a file, or several of them joined by `+`.

use crate::generate::{combine, from_part, generate, is_generator, parts, unknown};
use crate::library::{LIBRARY, named};
use crate::scale::scaled;
use crate::{DocumentError, DocumentProblem, Options, Workload, WorkloadError, from_rtapp};

/// Makes the workload that `spec` names: `hackbench:-T`, `ule-cfs/c-ray` (of the [library](crate::library)), `tasks.json`, or
/// several joined by `+`. A file or named workload with `@150%` behind it has so many per cent of its tasks' instances. Files are read with
/// `read_file`, which gets the path as typed; a path that contains `+` itself works if
/// it is the whole text.
///
/// # Errors
/// Those of [`from_generator`](crate::from_generator) and [`from_rtapp`], files that cannot be read, and names that are neither.
pub fn resolve(
    spec: &str,
    options: &Options<'_>,
    mut read_file: impl FnMut(&str) -> std::io::Result<String>,
) -> Result<Workload, WorkloadError> {
    let spec = spec.trim();
    let mut workload = if is_generator(spec) {
        generate(spec, options)?
    } else if let Some(made) = named_or_scaled(spec, options, &mut read_file) {
        made?
    } else {
        let whole = read_file(spec);
        match (whole, parts(spec).as_slice()) {
            (Ok(text), _) => from_file(spec, &text, options)?,
            (Err(error), [_]) => return Err(unreadable(spec, error)),
            (Err(_), several) => {
                let workloads = several
                    .iter()
                    .map(|part| {
                        if is_generator(part) {
                            return from_part(part, options);
                        }
                        if let Some(made) = named_or_scaled(part, options, &mut read_file) {
                            return made;
                        }
                        let text = read_file(part).map_err(|error| unreadable(part, error))?;
                        from_file(part, &text, options)
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                let mut workload = combine(spec, workloads);
                workload.offer(options.profiles);
                workload.drop_unused(options.profiles);
                workload.check()?;
                workload
            }
        }
    };
    if let Some(profile) = options.assume_profile {
        workload.assume_profile(profile, options.profiles)?;
    }
    if options.strict && !workload.warnings.is_empty() {
        return Err(WorkloadError::Strict { warnings: workload.warnings });
    }
    Ok(workload)
}

/// A workload with a name, or one or a file with a percentage of its instances; nothing if the text is neither.
fn named_or_scaled(
    text: &str,
    options: &Options<'_>,
    read_file: &mut impl FnMut(&str) -> std::io::Result<String>,
) -> Option<Result<Workload, WorkloadError>> {
    if let Some(entry) = named(text) {
        return Some(entry.make(options));
    }
    let (of, percent) = scaled(text)?;
    let whole = match named(of) {
        Some(entry) => entry.make(options),
        None => read_file(of).map_err(|error| unreadable(of, error)).and_then(|text| from_file(of, &text, options)),
    };
    Some(whole.and_then(|workload| workload.with_instances(percent)))
}

/// A file that somebody wrote: every task in it has something to do.
fn from_file(path: &str, text: &str, options: &Options<'_>) -> Result<Workload, WorkloadError> {
    let workload = from_rtapp(stem(path), text, options)?;
    let idle = workload.tasks.iter().find(|task| workload.programs[task.program.index()].is_idle());
    match idle {
        Some(task) => {
            let words = "it never does any work; give it an event such as \"run\": 1000";
            let path = format!("tasks.{}", task.name);
            Err(DocumentError { path, problem: DocumentProblem::Other(words.into()) }.into())
        }
        None => Ok(workload),
    }
}

/// The name of the workload that [`resolve`] makes of `spec`: of a file its stem, of everything else the text itself. With
/// it, a file that [`to_rtapp`](crate::to_rtapp) wrote is read back as the same workload.
pub fn workload_name(spec: &str) -> &str {
    let spec = spec.trim();
    if is_generator(spec) || parts(spec).len() > 1 || named(spec).is_some() { spec } else { stem(spec) }
}

/// A name that looks like no path and does not exist was probably meant to be a generator.
fn unreadable(path: &str, source: std::io::Error) -> WorkloadError {
    let shelf = path.split_once('/').map_or("", |(shelf, _)| shelf);
    let on_a_shelf = LIBRARY.iter().any(|entry| entry.name.split_once('/').is_some_and(|(other, _)| other == shelf));
    let looks_like_path = path.contains('/') && !on_a_shelf || path.contains('.') && !path.contains(':');
    if source.kind() == std::io::ErrorKind::NotFound && !looks_like_path {
        return unknown(path);
    }
    WorkloadError::Read { path: path.to_owned(), source }
}

/// The file name without directories and extension.
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    match file.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    const FILE: &str = r#"{ "tasks": { "t": { "loop": 1, "run": 10 } } }"#;

    fn resolve_with_file(spec: &str) -> Result<Workload, WorkloadError> {
        resolve(spec, &Options::default(), |path| match path {
            "dir/one.json" | "a+b.json" => Ok(FILE.to_owned()),
            "-" => Ok(FILE.to_owned()),
            _ => Err(Error::from(ErrorKind::NotFound)),
        })
    }

    #[test]
    fn files_get_the_name_of_their_stem() {
        assert_eq!(resolve_with_file("dir/one.json").unwrap().name, "one");
        assert_eq!(resolve_with_file("a+b.json").unwrap().name, "a+b");
        assert_eq!(resolve_with_file("-").unwrap().name, "-");
    }

    #[test]
    fn generators_and_files_run_side_by_side() {
        let workload = resolve_with_file("spin:-n2,-d1s+dir/one.json").unwrap();
        assert_eq!(workload.applications, ["spin:-n2,-d1s", "one"]);
        assert_eq!(workload.tasks.len(), 2);
        assert_eq!(workload.processes[workload.tasks[1].process.index()].application, 1);
    }

    #[test]
    fn named_workloads_need_no_file_and_run_beside_others() {
        assert_eq!(resolve_with_file("ule-cfs/c-ray").unwrap().name, "ule-cfs/c-ray");
        let both = resolve_with_file("ule-cfs/c-ray+spin:-n2,-d1s").unwrap();
        assert_eq!(both.applications, ["c-ray", "spin:-n2,-d1s"]);
        assert_eq!(workload_name("ule-cfs/c-ray"), "ule-cfs/c-ray");
    }

    #[test]
    fn a_profile_is_assumed_of_tasks_that_have_work_and_none() {
        let with = |spec: &str, profile| {
            let options = Options { assume_profile: Some(profile), ..Options::default() };
            resolve(spec, &options, |_| Ok(FILE.to_owned()))
        };
        let both = with("one.json+verilator:-t2", "canneal").unwrap();
        let profiles: Vec<Option<&str>> = both.tasks.iter().map(|task| task.profile.as_deref()).collect();
        assert!(profiles[0] == Some("canneal") && profiles[1..].iter().all(|name| *name == Some("verilator")));
        let error = with("one.json", "cannael").unwrap_err().to_string();
        assert!(error.contains("did you mean \"canneal\""), "{error}");
        let error = with("verilator:-t2", "canneal").unwrap_err();
        assert!(matches!(error, WorkloadError::NothingToAssume { .. }), "{error}");
        let roles = r#"{ "tasks": { "a": { "loop": 1, "run": 9 }, "b": { "loop": 1, "run": 9 }, "c": { "loop": 1, "run": 9 } } }"#;
        let with = |profile| {
            let options = Options { assume_profile: Some(profile), ..Options::default() };
            resolve("roles.json", &options, |_| Ok(roles.to_owned()))
        };
        let profiles = |text| with(text).unwrap().tasks.into_iter().map(|task| task.profile).collect::<Vec<_>>();
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(profiles("b=canneal"), [None, named("canneal"), None]);
        assert_eq!(profiles("c=canneal,perlbench,a=spin"), ["spin", "perlbench", "canneal"].map(named));
        for (text, problem) in [
            ("d=canneal", "roles are a, b, c"),
            ("a=canneal,a=spin", "two memory profiles"),
            ("a=cannael", "did you mean"),
        ] {
            let error = with(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_mistyped_generator_names_the_nearest_one() {
        let error = resolve_with_file("hackbnech:-T").unwrap_err();
        assert!(error.to_string().contains("did you mean \"hackbench\""), "{error}");
        let error = resolve_with_file("ule-cfs/cray").unwrap_err();
        assert!(error.to_string().contains("did you mean \"ule-cfs/c-ray\""), "{error}");
        let error = resolve_with_file("missing.json").unwrap_err();
        assert!(matches!(error, WorkloadError::Read { .. }), "{error}");
    }

    #[test]
    fn strict_reading_refuses_what_generators_do_not_model() {
        let strict = Options { strict: true, ..Options::default() };
        let none = |_: &str| Err(Error::from(ErrorKind::NotFound));
        assert!(matches!(resolve("schbench:-t2", &strict, none), Err(WorkloadError::Strict { .. })));
        assert!(resolve("schbench:-t2,-L", &strict, none).is_ok());
    }
}
