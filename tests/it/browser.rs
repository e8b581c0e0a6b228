//! Pages in a real browser: what they log, how they are laid out, what they look like.
//!
//! Without Chromium such a test says so and passes, unless `NIGHTMILL_REQUIRE_BROWSER` is set.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Shows a page in a frame of a width, opens all that is folded, and writes down what there is to see.
const FRAME: &str = r"<!doctype html><iframe id=frame src='PAGE' width=WIDTH height=9000></iframe><pre id=found></pre><script>
frame.onload = () => {
  const page = frame.contentDocument, style = e => frame.contentWindow.getComputedStyle(e);
  page.querySelectorAll('details').forEach(e => e.open = true);
  const parts = color => color.match(/[\d.]+/g).map(Number);
  const light = color => parts(color).slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const color = style(e).backgroundColor, alpha = parts(color)[3];
      if (alpha === undefined || alpha > 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const contrast = e => {
    const ink = e.namespaceURI.endsWith('svg') ? style(e).fill : style(e).color;
    const [low, high] = [light(ink), light(ground(e))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const said = e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  const seen = e => e.getBoundingClientRect().width > 0;
  const texts = [...page.body.querySelectorAll('*')].filter(e => e.tagName !== 'title' && said(e) && seen(e));
  const width = page.documentElement.clientWidth;
  const found = {
    dark: frame.contentWindow.matchMedia('(prefers-color-scheme: dark)').matches,
    overflow: page.documentElement.scrollWidth - width,
    wide: [...page.body.querySelectorAll('*')]
      .filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > width + 1).map(e => e.outerHTML.slice(0, 80)),
    faint: texts.filter(e => contrast(e) < 4.5).map(e => contrast(e).toFixed(1) + ' ' + e.textContent.trim().slice(0, 60)),
    charts: [...page.querySelectorAll('svg.chart')].map(e => {
      const box = e.getBoundingClientRect();
      return { kind: e.classList[1], metric: e.dataset.metric, width: box.width, height: box.height,
        title: e.querySelector('title')?.textContent, label: e.getAttribute('aria-label'),
        untitled: [...e.querySelectorAll('rect, circle')].filter(part => !part.querySelector('title')).length };
    }),
    headings: [...page.querySelectorAll('h1, h2, h3, h4')].map(e => Number(e.tagName[1])),
  };
  document.getElementById('found').textContent = JSON.stringify(found);
};
</script>";

/// Shows a page in a frame and does something with it: `at` finds an element by its id, `type` fills in the search, `wait`
/// lets events of the page happen. What `DO` returns is written down.
const DRIVER: &str = r"<!doctype html><iframe id=frame src='PAGE' width=1280 height=2400></iframe><pre id=found></pre><script>
frame.onload = async () => {
  const page = frame.contentDocument, window_ = frame.contentWindow, at = id => page.getElementById(id);
  const wait = () => new Promise(done => setTimeout(done, 50));
  const type = text => { at('q').value = text; at('q').dispatchEvent(new window_.Event('input')); };
  const key = name => (page.activeElement || page.body)
    .dispatchEvent(new window_.KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
  const ids = () => [...page.querySelectorAll('.list tbody tr .id')].map(id => id.textContent);
  const found = await (async () => { DO })().catch(problem => ({ problem: String(problem.stack) }));
  document.getElementById('found').textContent = JSON.stringify(found);
};
</script>";

/// A browser that is there.
pub struct Browser {
    name: &'static str,
}

impl Browser {
    /// The first that is found; none where none is needed.
    #[track_caller]
    pub fn find() -> Option<Self> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let name = names.into_iter().find(|name| {
            let version = Command::new(name).arg("--version").output();
            version.is_ok_and(|output| output.status.success())
        });
        if name.is_none() {
            let required = std::env::var_os("NIGHTMILL_REQUIRE_BROWSER").is_some();
            assert!(!required, "no Chromium found");
            eprintln!("skipped: no Chromium found");
        }
        name.map(|name| Self { name })
    }

    /// Opens a page. It must log nothing.
    #[track_caller]
    pub fn open(&self, page: &Path, mode: &[&str]) -> String {
        let profile = tempfile::tempdir().unwrap();
        let output = Command::new(self.name)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--enable-logging=stderr",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--window-size=1280,2400",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(mode)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!log.contains("CONSOLE"), "the page logged something: {log}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// How a page is laid out in a window of this width.
    #[track_caller]
    pub fn measure(&self, page: &Path, width: u32, dark: bool) -> Value {
        let name = page.file_name().unwrap().to_string_lossy();
        let text = FRAME
            .replace("PAGE", &name)
            .replace("WIDTH", &width.to_string());
        let mut mode = vec!["--dump-dom", "--allow-file-access-from-files"];
        if dark {
            mode.push("--blink-settings=preferredColorScheme=0");
        }
        self.found(page, &text, &mode)
    }

    /// What a script comes to that does something with a page, opened with this part of its address (`#…`).
    #[track_caller]
    pub fn drive(&self, page: &Path, address: &str, script: &str) -> Value {
        let name = page.file_name().unwrap().to_string_lossy();
        let text = DRIVER
            .replace("PAGE", &format!("{name}{address}"))
            .replace("DO", script);
        let mode = [
            "--dump-dom",
            "--allow-file-access-from-files",
            "--virtual-time-budget=20000",
        ];
        let found = self.found(page, &text, &mode);
        assert!(found["problem"].is_null(), "{found}");
        found
    }

    /// What a frame around a page writes down.
    #[track_caller]
    fn found(&self, page: &Path, text: &str, mode: &[&str]) -> Value {
        let folder = page.parent().unwrap();
        let frame = tempfile::Builder::new()
            .suffix(".html")
            .tempfile_in(folder)
            .unwrap();
        std::fs::write(frame.path(), text).unwrap();
        let shown = self.open(frame.path(), mode);
        let found = shown.split_once("<pre id=\"found\">").unwrap().1;
        let found = found.split_once("</pre>").unwrap().0;
        let found = found
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&nbsp;", "\u{a0}")
            .replace("&amp;", "&");
        serde_json::from_str(&found).unwrap_or_else(|e| panic!("{e}: {shown}"))
    }

    /// Panics unless a page can be read in narrow and wide windows, by day and by night, and its charts are there.
    #[track_caller]
    pub fn assert_readable(&self, page: &Path, charts: usize) {
        for (width, dark) in [(400, false), (1280, false), (400, true), (1280, true)] {
            let found = self.measure(page, width, dark);
            let what = format!("at {width}, dark {dark}");
            assert_eq!(found["dark"], dark, "{what}");
            assert_eq!(found["overflow"], 0, "{what}: {}", found["wide"]);
            let faint = found["faint"].as_array().unwrap();
            assert!(faint.is_empty(), "{what}: too faint: {faint:?}");
            let drawn = found["charts"].as_array().unwrap();
            assert_eq!(drawn.len(), charts, "{what}");
            for chart in drawn {
                let size = |side: &str| chart[side].as_f64().unwrap();
                assert!(
                    size("width") > 200.0 && size("height") > 60.0,
                    "{what}: {chart}"
                );
                for words in ["title", "label"] {
                    let words = chart[words].as_str().unwrap_or_default();
                    assert!(words.len() > 20, "{what}: {chart}");
                }
                assert_eq!(chart["untitled"], 0, "{what}: {chart}");
            }
            // No level of headings is left out.
            let headings = found["headings"].as_array().unwrap();
            let levels: Vec<u64> = headings.iter().map(|of| of.as_u64().unwrap()).collect();
            let steps = levels.windows(2);
            let jumps: Vec<_> = steps.filter(|step| step[1] > step[0] + 1).collect();
            assert!(jumps.is_empty(), "{what}: {jumps:?} in {levels:?}");
        }
    }
}
