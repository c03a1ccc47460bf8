import { ApiError, badRequest, expired, invalid } from './api-error.ts';
import { forbiddenValue, notSupported } from './field-error.ts';
import { isObject } from './json-value.ts';
import type { Resource } from './resource.ts';
import {
  bothSelectors,
  parseFieldSelector,
  parseLabelSelector,
  type Selector,
} from './selectors.ts';
import type { Collection, Store, Stored } from './store.ts';

/** The query of a list or watch, read once. */
export interface ListQuery {
  readonly namespace: string | undefined;
  readonly select: Selector | undefined;
  readonly limit: number;
  readonly continueToken: string;
  readonly resourceVersion: string;
  readonly resourceVersionMatch: string;
  readonly sendInitialEvents: boolean;
}

export interface ListPage {
  readonly items: readonly Stored[];
  readonly revision: number;
  readonly continueToken?: string;
  readonly remainingItemCount?: number;
}

const OPTIONS = { group: 'meta.k8s.io', kind: 'ListOptions' } as const;

/** Reads and checks the query of a list or watch.
 * @throws ApiError 400 or 422 for what the real server refuses too */
export function parseListQuery(
  resource: Resource,
  namespace: string | undefined,
  query: URLSearchParams,
): ListQuery {
  const select = bothSelectors(
    parseLabelSelector(query.get('labelSelector') ?? ''),
    parseFieldSelector(query.get('fieldSelector') ?? '', resource),
  );
  const resourceVersion = query.get('resourceVersion') ?? '';
  const resourceVersionMatch = query.get('resourceVersionMatch') ?? '';
  const limit = Number(query.get('limit') ?? 0);
  const sendInitialEvents = query.get('sendInitialEvents');
  const isWatch = isTrue(query.get('watch'));
  if (!Number.isInteger(limit))
    throw badRequest(
      `strconv.ParseInt: parsing ${JSON.stringify(query.get('limit'))}: invalid syntax`,
    );
  if (isWatch && sendInitialEvents !== null && resourceVersionMatch !== 'NotOlderThan') {
    throw invalid(OPTIONS, '', [
      forbiddenValue(
        'resourceVersionMatch',
        'sendInitialEvents requires setting resourceVersionMatch to NotOlderThan',
      ),
    ]);
  }
  if (!isWatch && sendInitialEvents !== null) {
    throw invalid(OPTIONS, '', [
      forbiddenValue('sendInitialEvents', 'sendInitialEvents is forbidden for list'),
    ]);
  }
  if (isWatch && sendInitialEvents === null && resourceVersionMatch !== '') {
    throw invalid(OPTIONS, '', [
      forbiddenValue(
        'resourceVersionMatch',
        'resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided',
      ),
    ]);
  }
  if (!isWatch) checkMatch(resourceVersion, resourceVersionMatch, query.get('continue') ?? '');
  return {
    namespace,
    select,
    limit: Math.max(limit, 0),
    continueToken: query.get('continue') ?? '',
    resourceVersion,
    resourceVersionMatch,
    sendInitialEvents: isTrue(sendInitialEvents),
  };
}

function checkMatch(resourceVersion: string, match: string, continueToken: string): void {
  if (match === '') return;
  if (match !== 'Exact' && match !== 'NotOlderThan') {
    const cause = notSupported('resourceVersionMatch', match, []);
    throw invalid(OPTIONS, '', [
      {
        ...cause,
        message: `Unsupported value: ${JSON.stringify(match)}: supported values: "Exact", "NotOlderThan", ""`,
      },
    ]);
  }
  if (continueToken !== '') {
    throw invalid(OPTIONS, '', [
      forbiddenValue(
        'resourceVersionMatch',
        'resourceVersionMatch is forbidden when continue is provided',
      ),
    ]);
  }
  if (resourceVersion === '') {
    throw invalid(OPTIONS, '', [
      forbiddenValue(
        'resourceVersionMatch',
        'resourceVersionMatch is forbidden unless resourceVersion is provided',
      ),
    ]);
  }
  if (match === 'Exact' && resourceVersion === '0') {
    throw invalid(OPTIONS, '', [
      forbiddenValue(
        'resourceVersionMatch',
        'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
      ),
    ]);
  }
}

/** True for the spellings of a boolean that query strings use. */
export function isTrue(text: string | null): boolean {
  return text !== null && /^(1|t|true|)$/i.test(text);
}

/** A resourceVersion as a number.
 * @throws ApiError 400 for anything but digits */
export function parseRevision(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  throw badRequest(
    `invalid resource version: resourceVersion: Invalid value: ${JSON.stringify(text)}: strconv.ParseUint: parsing ${JSON.stringify(text)}: invalid syntax`,
  );
}

/** One page of a list. Pages of one list show one moment, however much is written between them.
 * @throws ApiError 410 where that moment is no longer known, 504 where it has not come yet */
export function listPage(store: Store, collection: Collection, query: ListQuery): ListPage {
  const token = query.continueToken === '' ? undefined : parseContinue(query.continueToken);
  const asked = query.resourceVersion === '' ? 0 : parseRevision(query.resourceVersion);
  if (asked > store.revision) throw tooLarge(asked, store.revision);
  const exact =
    query.resourceVersionMatch === 'Exact' ||
    (query.resourceVersionMatch === '' && asked > 0 && query.limit > 0);
  const revision = token?.revision ?? (exact ? asked : store.revision);
  const all = store.snapshot(collection, revision);
  if (all === undefined)
    throw token === undefined
      ? expired('The resourceVersion for the provided list is too old.')
      : continueExpired();
  const matches = matching(all, query);
  const from = token === undefined ? 0 : matches.findIndex((each) => each.key > token.after);
  const rest = from < 0 ? [] : matches.slice(from);
  // resourceVersion=0 is served from the watch cache, which knows no pages.
  if (
    query.limit === 0 ||
    rest.length <= query.limit ||
    (query.resourceVersion === '0' && token === undefined)
  )
    return { items: rest, revision };
  const items = rest.slice(0, query.limit);
  return {
    items,
    revision,
    continueToken: formatContinue(revision, items.at(-1)?.key ?? ''),
    // With a selector the real server does not count what is left.
    ...(query.select === undefined ? { remainingItemCount: rest.length - items.length } : {}),
  };
}

function matching(all: readonly Stored[], query: ListQuery): readonly Stored[] {
  const { namespace, select } = query;
  if (namespace === undefined && select === undefined) return all;
  return all.filter(
    (each) =>
      (namespace === undefined || each.object.metadata.namespace === namespace) &&
      (select === undefined || select(each.object)),
  );
}

function formatContinue(revision: number, after: string): string {
  return Buffer.from(
    JSON.stringify({ v: 'meta.k8s.io/v1', rv: revision, start: `${after}\0` }),
  ).toString('base64url');
}

function parseContinue(token: string): { readonly revision: number; readonly after: string } {
  try {
    const parsed: unknown = JSON.parse(Buffer.from(token, 'base64url').toString());
    if (
      isObject(parsed) &&
      typeof parsed['rv'] === 'number' &&
      typeof parsed['start'] === 'string'
    ) {
      return { revision: parsed['rv'], after: parsed['start'].replace(/\0$/, '') };
    }
  } catch {
    // Falls through to the same answer as a token of another shape.
  }
  throw badRequest('invalid continue token: continue key is not valid');
}

function continueExpired(): ApiError {
  return expired(
    'The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.',
  );
}

/** 504: the asked moment is in the future. The real server waits three seconds before it says so;
 * this one knows at once. */
export function tooLarge(asked: number, current: number): ApiError {
  return new ApiError({
    code: 504,
    reason: 'Timeout',
    message: `Timeout: Too large resource version: ${asked}, current: ${current}`,
    details: {
      causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
      retryAfterSeconds: 1,
    },
  });
}
