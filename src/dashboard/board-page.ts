import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AppViewRoute } from '@bull-board/api/typings/app';
import { ExpressAdapter } from '@bull-board/express';
import type { Express } from 'express';

/** Texts of Bull Board's page that are wrong about our jobs, with what is shown instead. What fails
 * is delayed in BullMQ, and so is what runs periodically; what waits is prioritized. */
export const TEXTS: Readonly<Record<string, string>> = {
  Delayed: 'Failing or due later',
  Prioritized: 'Queued',
  Error: 'Reason',
  'No {{status}} jobs in this queue.': 'None in this queue.',
  'No queues have {{status}} jobs.': 'None in all queues.',
  'delayed for': 'after',
  'Process started at': 'Last run began at',
  'Will run at': 'Next run at',
  'No errors recorded': 'No run of it has failed since it was last done.',
};

/** Hidden are the tabs of states that no job of ours has, and what says nothing about our jobs: the
 * order of the queues, Bull Board's version, progress, options and logs. Long names and rows of
 * tabs are wrapped, and small text is as dark as other text. Elements are found by the part of
 * their class that all builds of Bull Board have in common. */
const STYLE = `#root {
  li:has(> a:is([href$="status=failed"], [href$="status=waiting-children"], [href$="=paused"])),
  [class^="headerControls-"], [class*="appVersion-"],
  [class^="tabActions-"] > :is(:nth-child(2), :nth-child(3), :nth-child(4)) { display: none }
  :is([class^="titleWithLink-"], [class^="statusTabs-"]) { flex-wrap: wrap }
  :is([class^="jobName-"], [class^="jobId-"]) { white-space: normal; overflow-wrap: anywhere }
  :is(small, [class^="description-"]) { opacity: 1 }
}`;

/** Gives the page the title of what it shows, names to the buttons that have only a picture, and
 * the links to other rows the role of a list. */
const SCRIPT = `
const names = [['ul > li > [class*="button-"]:has(> svg)', ['Full screen', 'Settings', 'Pages']],
  ['[class*="copyBtn-"]', ['Copy']]];
const name = () => {
  for (const [selector, texts] of names)
    document.querySelectorAll(selector + ':not([aria-label])').forEach((button, i) =>
      button.setAttribute('aria-label', texts[i % texts.length]));
  document.querySelector('ul[role="navigation"]')?.removeAttribute('role');
  const [, queue, job] = /\\/queue\\/([^/]+)(?:\\/([^/]+))?/.exec(location.pathname) ?? [];
  const title = [job, queue, 'Queues'].find((part) => part !== undefined);
  document.title = decodeURIComponent(title) + ' · sutler';
};
new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
name();
`;

/** Bull Board's page with our texts, and without links to fonts on another site. */
export class BoardPage extends ExpressAdapter {
  constructor() {
    super();
    this.app.disable('x-powered-by');
  }

  override setErrorHandler(handle: Parameters<ExpressAdapter['setErrorHandler']>[0]): this {
    return super.setErrorHandler((error) =>
      // Of a name in the query that is no text.
      error instanceof URIError ? { status: 400, body: { error: error.message } } : handle(error),
    );
  }

  override setStaticPath(route: string, folder: string): ExpressAdapter {
    const path = 'locales/en-US/messages.json';
    const texts: unknown = JSON.parse(
      readFileSync(join(folder, path), 'utf8'),
      (_key, value: unknown) => (typeof value === 'string' ? (TEXTS[value] ?? value) : value),
    );
    this.app.get(`${route}/${path}`, (_request, response) => void response.json(texts));
    this.app.get(`${route}/sutler.js`, (_request, response) => {
      response.type('js').send(SCRIPT);
    });
    return super.setStaticPath(route, folder);
  }

  override setEntryRoute(view: AppViewRoute): ExpressAdapter {
    this.app.get(view.route, (_request, response, next) => {
      const { name, params } = view.handler({ basePath: this.basePath, uiConfig: this.uiConfig });
      response.render(name, params, (error: Error | null, html) => {
        if (error !== null) return next(error);
        const ours = html.replaceAll(/<link\b[^>]*\bhref="https?:[^>]*>/g, '');
        const added = `<style>${STYLE}</style><script defer src="static/sutler.js"></script></head>`;
        response.send(ours.replace('</head>', added));
      });
    });
    return this;
  }

  override getRouter(): Express {
    return this.app;
  }
}
