/** Where the script is served, which a page with `fullPage` loads. */
export const RENEWAL_PATH = '/renewal.js';

/** Script of a page that renews itself: every 5 s while it can be seen, and when it comes into
 * sight again, it asks for its own URL and changes what differs. So it keeps the scroll position,
 * the focus, and what was typed or selected. What can't be renewed stays, and the header says why.
 * Without the script, a page shows the same until it is loaded again. */
export const RENEWAL_SCRIPT = `
const PERIOD_MS = 5_000;
const ANSWER_MS = 10_000;
const state = document.getElementById('renewal');
let renewedMs = Date.now();
let isBusy = false;

/** Makes \`old\` what \`next\` is. Leaves nodes that are equal, also a form with what is typed. */
function change(old, next) {
  if (old.isEqualNode(next)) return;
  if (old.nodeName !== next.nodeName || old.nodeType !== Node.ELEMENT_NODE)
    return old.replaceWith(next);
  for (const { name } of [...old.attributes])
    if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) old.setAttribute(name, value);
  const children = [...next.childNodes];
  for (const surplus of [...old.childNodes].slice(children.length)) surplus.remove();
  const known = [...old.childNodes];
  children.forEach((child, i) => (known[i] ? change(known[i], child) : old.append(child)));
}

/** A row may have moved while a link in it had the focus. */
function keepFocus(work) {
  const href = document.activeElement?.getAttribute('href');
  work();
  const focused = document.activeElement;
  if (!href || focused?.getAttribute('href') === href) return;
  const moved = document.querySelector('main a[href="' + CSS.escape(href) + '"]');
  moved ? moved.focus({ preventScroll: true }) : focused?.blur();
}

async function renew() {
  if (document.hidden || isBusy) return;
  isBusy = true;
  try {
    const url = new URL(location.href);
    // What was done when the page was opened is no news.
    url.searchParams.delete('said');
    const headers = { accept: 'text/html' };
    const answer = await fetch(url, { headers, signal: AbortSignal.timeout(ANSWER_MS) });
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (!answer.ok) throw new Error(page.querySelector('.note')?.textContent ?? answer.statusText);
    keepFocus(() => change(document.querySelector('main'), page.querySelector('main')));
    document.title = page.title;
    renewedMs = Date.now();
    state.textContent = '';
  } catch (error) {
    const seconds = Math.round((Date.now() - renewedMs) / 1_000);
    state.textContent = 'Not renewed for ' + seconds + ' s: ' + error.message;
  } finally {
    isBusy = false;
  }
}

setInterval(renew, PERIOD_MS);
document.addEventListener('visibilitychange', renew);
`;
