/** The login form.
 * @param next  path to redirect to, checked by the caller
 * @param problem  why the form is shown again; empty at first */
export function loginPage(next: string, problem: string): string {
  return page(
    'Log in',
    `${problem === '' ? '' : note(problem)}
<form method="post" action="/login">
<input type="hidden" name="next" value="${escape(next)}">
<label>User<input name="user" autocomplete="username" required autofocus></label>
<label>Password
<input name="password" type="password" autocomplete="current-password" required></label>
<button>Log in</button>
</form>`,
  );
}

/** Asks for a confirmation, because following a link must not log the user out. */
export function logoutPage(): string {
  const form = '<form method="post" action="/logout"><button>Log out</button></form>';
  return page('Log out', `${form}\n${BACK}`);
}

/** Shown instead of the queues while Redis can't be read; reloads itself. */
export function troublePage(trouble: string): string {
  return page('Waiting', `${note(trouble)}\n<p>This page reloads every 3 seconds.</p>`, 3);
}

export function refusedPage(reason: string): string {
  return page('Refused', `${note(reason)}\n${BACK}`);
}

const BACK = '<p><a href="/queues/">Back to the queues</a></p>';

function note(text: string): string {
  return `<p class="note" role="alert">${escape(text)}</p>`;
}

function page(title: string, body: string, refreshSeconds?: number): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
${refreshSeconds === undefined ? '' : `<meta http-equiv="refresh" content="${refreshSeconds}">`}
<title>${escape(title)} · sutler</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { display: grid; place-items: center; min-height: 100vh; margin: 0;
  background: light-dark(#f4f5f7, #151a21); }
main { width: min(22rem, 88vw); padding: 2rem; border-radius: 8px;
  background: light-dark(#fff, #1e242d); box-shadow: 0 1px 4px #0003; }
h1 { margin: 0 0 1rem; font-size: 1.25rem; }
label { display: block; margin-bottom: 1rem; }
input { display: block; box-sizing: border-box; width: 100%; margin-top: .25rem; padding: .5rem;
  font: inherit; }
button { width: 100%; padding: .6rem; border: 0; border-radius: 4px; background: #2f5d8a;
  color: #fff; font: inherit; cursor: pointer; }
.note { padding: .6rem .8rem; border-left: 4px solid #c7781d;
  background: light-dark(#fdf3e4, #33291b); overflow-wrap: anywhere; }
</style>
</head>
<body><main><h1>sutler</h1>
${body}
</main></body>
</html>
`;
}

function escape(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}
