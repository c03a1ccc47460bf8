import { ApiError, badRequest, expired, invalid, type Cause } from './api-error.ts';
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

/** The query of a list or watch, parsed. */
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

/** Parses and checks the query of a list or watch.
 * @throws ApiError 400 or 422, as the real server does */
export function parseListQuery(
  resource: Resource,
  namespace: string | undefined,
  query: URLSearchParams,
): ListQuery {
  const select = bothSelectors(
    parseLabelSelector(query.get('labelSelector') ?? ''),
    parseFieldSelector(query.get('fieldSelector') ?? '', resource),
  );
  const parsed: ListQuery = {
    namespace,
    select,
    limit: parseLimit(query.get('limit')),
    continueToken: query.get('continue') ?? '',
    resourceVersion: query.get('resourceVersion') ?? '',
    resourceVersionMatch: query.get('resourceVersionMatch') ?? '',
    sendInitialEvents: isTrue(query.get('sendInitialEvents')),
  };
  const cause = isTrue(query.get('watch'))
    ? watchCause(parsed, query.has('sendInitialEvents'))
    : listCause(parsed, query.has('sendInitialEvents'));
  if (cause !== undefined) throw invalid(OPTIONS, '', [cause]);
  return parsed;
}

function parseLimit(text: string | null): number {
  const limit = Number(text ?? 0);
  if (Number.isInteger(limit)) return Math.max(limit, 0);
  throw badRequest(`strconv.ParseInt: parsing ${JSON.stringify(text)}: invalid syntax`);
}

const MATCH = 'resourceVersionMatch';

/** Which parameter a watch may not have in this combination, if any. */
function watchCause(query: ListQuery, hasInitialEvents: boolean): Cause | undefined {
  const match = query.resourceVersionMatch;
  if (hasInitialEvents && match !== 'NotOlderThan') {
    const detail = `sendInitialEvents requires setting ${MATCH} to NotOlderThan`;
    return forbiddenValue(MATCH, detail);
  }
  if (hasInitialEvents || match === '') return undefined;
  const detail = `${MATCH} is forbidden for watch unless sendInitialEvents is provided`;
  return forbiddenValue(MATCH, detail);
}

/** Which parameter a list may not have in this combination, if any. */
function listCause(query: ListQuery, hasInitialEvents: boolean): Cause | undefined {
  if (hasInitialEvents)
    return forbiddenValue('sendInitialEvents', 'sendInitialEvents is forbidden for list');
  const match = query.resourceVersionMatch;
  if (match === '') return undefined;
  if (match !== 'Exact' && match !== 'NotOlderThan') {
    const supported = '"Exact", "NotOlderThan", ""';
    const message = `Unsupported value: ${JSON.stringify(match)}: supported values: ${supported}`;
    return { ...notSupported(MATCH, match, []), message };
  }
  if (query.continueToken !== '')
    return forbiddenValue(MATCH, `${MATCH} is forbidden when continue is provided`);
  if (query.resourceVersion === '')
    return forbiddenValue(MATCH, `${MATCH} is forbidden unless resourceVersion is provided`);
  if (match === 'Exact' && query.resourceVersion === '0')
    return forbiddenValue(MATCH, `${MATCH} "exact" is forbidden for resourceVersion "0"`);
  return undefined;
}

/** True for the spellings of true in query strings. */
export function isTrue(text: string | null): boolean {
  return text !== null && /^(1|t|true|)$/i.test(text);
}

/** A resourceVersion as a number.
 * @throws ApiError 400 for anything but digits */
export function parseRevision(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  const value = JSON.stringify(text);
  throw badRequest(
    `invalid resource version: resourceVersion: Invalid value: ${value}: ` +
      `strconv.ParseUint: parsing ${value}: invalid syntax`,
  );
}

/** One page of a list. All pages of one list show the same revision, however much is written
 * between them.
 * @throws ApiError 410 where that revision is no longer known, 504 where it is in the future */
export function listPage(store: Store, collection: Collection, query: ListQuery): ListPage {
  const token = query.continueToken === '' ? undefined : parseContinue(query.continueToken);
  const revision = revisionToList(store, query, token);
  const all = store.snapshot(collection, revision);
  if (all === undefined)
    throw token === undefined
      ? expired('The resourceVersion for the provided list is too old.')
      : continueExpired();
  const matches = matching(all, query);
  const rest = token === undefined ? matches : matches.filter((each) => each.key > token.after);
  // resourceVersion=0 is served from the watch cache, which does not support pages.
  const isWhole = query.limit === 0 || (query.resourceVersion === '0' && token === undefined);
  if (isWhole || rest.length <= query.limit) return { items: rest, revision };
  const items = rest.slice(0, query.limit);
  return {
    items,
    revision,
    continueToken: formatContinue(revision, items.at(-1)?.key ?? ''),
    // With a selector the real server does not count the remaining items.
    ...(query.select === undefined ? { remainingItemCount: rest.length - items.length } : {}),
  };
}

interface ContinueToken {
  readonly revision: number;
  /** The key of the last item of the previous page. */
  readonly after: string;
}

function revisionToList(store: Store, query: ListQuery, token: ContinueToken | undefined): number {
  const asked = query.resourceVersion === '' ? 0 : parseRevision(query.resourceVersion);
  if (asked > store.revision) throw tooLarge(asked, store.revision);
  if (token !== undefined) return token.revision;
  const isExact =
    query.resourceVersionMatch === 'Exact' ||
    (query.resourceVersionMatch === '' && asked > 0 && query.limit > 0);
  return isExact ? asked : store.revision;
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

function parseContinue(token: string): ContinueToken {
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
    // No JSON: the same answer as for a token of another shape.
  }
  throw badRequest('invalid continue token: continue key is not valid');
}

function continueExpired(): ApiError {
  return expired(
    'The provided continue parameter is too old to display a consistent list result. ' +
      'You can start a new list without the continue parameter.',
  );
}

/** 504: the requested revision is in the future. The real server waits three seconds for it first;
 * this one answers at once. */
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
