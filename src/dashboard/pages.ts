import { type Content, Markup, markup } from './markup.ts';
import { RENEWAL_PATH } from './renewal.ts';

/** Writes the page that says why a request is refused. */
export function refusedPage(title: string, reason: string): string {
  return page(
    title,
    markup`<main class="small"><h1>${title}</h1>
<p class="note" role="alert">${reason}</p>
<p><a href="/">Back to what is pending</a></p>
</main>`,
  );
}

/** Writes a page with links to the other pages. It renews itself (renewal.ts). */
export function fullPage(title: string, body: Content): string {
  return page(
    title,
    markup`<script src="${RENEWAL_PATH}" defer></script>
<header><strong>sutler</strong>
<nav aria-label="Pages"><a href="/">Pending</a> <a href="/queues/">Queues</a></nav>
<span id="renewal" class="bad" role="status"></span></header>
<main>${body}</main>`,
  );
}

function page(title: string, body: Markup): string {
  return markup`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>${title} · sutler</title>
<style>${new Markup(STYLE)}</style>
</head>
<body>
${body}
</body>
</html>
`.text;
}

/** For light and dark, and from 320 pixels on. Below 800 pixels each row of a table is a block. */
const STYLE = `
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif;
  --page: light-dark(#f4f5f7, #151a21); --card: light-dark(#fff, #1e242d);
  --line: light-dark(#d8dce2, #39424f); --quiet: light-dark(#565f6b, #a4afbd);
  --link: light-dark(#1d5a94, #7db7ef); --bad: light-dark(#a8321f, #ff9d8a);
  --fine: light-dark(#24703c, #7fce97); }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); overflow-wrap: anywhere; }
a { color: var(--link); }
header { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; padding: .75rem 1rem;
  background: var(--card); border-bottom: 1px solid var(--line); }
header nav { display: flex; flex-wrap: wrap; gap: 0 1rem; }
main { max-width: 90rem; margin: 0 auto; padding: 1rem; }
main.small { width: min(24rem, 100% - 2rem); margin: 15vh auto 0; padding: 1.5rem; }
main.small, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
h1 { margin: 0 0 .75rem; font-size: 1.35rem; }
h2 { margin: 1.5rem 0 .5rem; font-size: 1.1rem; }
.card h2 { margin: 0; font-size: 1rem; }
.cards { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); }
.card { padding: .75rem 1rem; }
.card p { margin: .25rem 0 0; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0 0; }
dt, .quiet { color: var(--quiet); }
dd, ul, ol { margin: 0; }
ul, ol { padding-left: 1.2rem; }
.bad { color: var(--bad); font-weight: 600; }
.fine { color: var(--fine); font-weight: 600; }
.row { display: flex; flex-wrap: wrap; gap: .5rem; align-items: end; margin: .5rem 0; }
.row > a { padding: .15rem .7rem; border: 1px solid var(--line); border-radius: 1rem;
  background: var(--card); text-decoration: none; }
.row > a[aria-current] { border-color: var(--link); font-weight: 600; }
table { width: 100%; table-layout: fixed; border-collapse: collapse; background: var(--card);
  border: 1px solid var(--line); }
.faults { margin-bottom: 1rem; }
.faults th { width: 28%; }
.faults th:nth-child(1) { width: auto; }
.faults th:nth-child(3) { width: 9%; }
.faults th:nth-child(4) { width: 18%; }
.faults a[aria-current] { font-weight: 600; }
th, td { padding: .4rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { color: var(--quiet); font-weight: 600; }
input { display: block; width: 100%; padding: .45rem .5rem; font: inherit; }
button { padding: .5rem 1rem; border: 0; border-radius: 4px; background: #2f5d8a; color: #fff;
  font: inherit; cursor: pointer; }
.note { padding: .6rem .8rem; border-left: 4px solid #c7781d;
  background: light-dark(#fdf3e4, #33291b); }
code { padding: 0 .25rem; border-radius: 3px; background: light-dark(#eceef1, #2a323d); }
@media (max-width: 50rem) {
  thead { display: none; }
  table, tbody, tr, td { display: block; }
  tr { padding: .4rem 0; border-bottom: 1px solid var(--line); }
  td { padding: .1rem .6rem; border: 0; }
  td:empty { display: none; }
  td::before { content: attr(data-name) ': '; color: var(--quiet); }
}
`;
