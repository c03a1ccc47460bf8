/** Path of the script, which each `fullPage` loads. */
export const RENEWAL_PATH = '/renewal.js';

/** Script that renews its page. Every 5 s while the page is visible, and when it becomes visible,
 * the script loads the page's URL and changes only what differs. So it keeps scroll position,
 * focus, input and selection. If a renewal fails, the page stays, and its header says why. Without
 * the script, a page stays the same until it is loaded again. */
export const RENEWAL_SCRIPT = `
const PERIOD_MS = 5_000;
const ANSWER_MS = 10_000;
const state = document.getElementById('renewal');
let renewedMs = Date.now();
let isBusy = false;

/** Makes \`old\` equal to \`next\`. Keeps equal nodes, and so the input in a form. */
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
    // The result of an action is shown only once.
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
