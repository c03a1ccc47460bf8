import { type Clock, systemClock } from '../runtime/clock.ts';
import type { Closers } from '../runtime/closers.ts';
import type { HealthChecks } from '../runtime/health.ts';
import { isFields } from '../runtime/json.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { KubeClient } from './client.ts';
import { isForbidden } from './kube-error.ts';
import type { Verb } from './request-sender.ts';
import { ownAccessReviews, type Resource } from './resources.ts';

/** The verb that a role grants for each call of the client. */
const VERBS = {
  get: 'get',
  list: 'list',
  listItems: 'list',
  watch: 'watch',
  create: 'create',
  update: 'update',
  patch: 'patch',
  delete: 'delete',
} as const satisfies Partial<Record<keyof KubeClient, Verb>>;

/** How often a right that was refused is looked for again: what needs it may not come for hours. */
const LOOK_AGAIN_MS = 60_000;

/** A call that was refused, as SelfSubjectAccessReview asks for it. */
interface RefusedCall {
  readonly verb: Verb;
  readonly group: string;
  readonly resource: string;
  readonly namespace?: string;
  readonly name?: string;
}

interface MissingRightsContext {
  readonly health: Pick<HealthChecks, 'note'>;
  readonly log: Logger;
  readonly closers: Pick<Closers, 'add'>;
  readonly clock?: Clock;
}

/** The same client, which says once in the log, and in /readyz until it is granted, which right the
 * account lacks and the rule that grants it. The calls themselves fail as before: what needs the
 * right does not work, and the rest goes on. */
export function nameMissingRights(
  client: KubeClient,
  { health, log, closers, clock = systemClock }: MissingRightsContext,
): KubeClient {
  const missing = new Map<string, RefusedCall>();
  const forget = (rule: string): void => {
    if (missing.delete(rule)) log.info({ rule }, 'this account has the right now');
  };
  const judge = (resource: Resource, verb: Verb, at: unknown, error: unknown): void => {
    const { group, plural } = resource;
    const rule = ruleFor(resource, [verb]) + placeOf(at);
    if (error === undefined) return forget(rule);
    if (!isRbac(error, verb)) return;
    const isNew = !missing.has(rule);
    // A role may grant it for that name alone.
    missing.set(rule, { verb, group, resource: plural, ...namesIn(at) });
    if (!isNew) return;
    log.warn(
      { rule, error: error.message },
      'this account lacks a right: what needs it does not work until a role grants the rule',
    );
  };
  const lookAgain = async (): Promise<void> => {
    const looks = [...missing].map(async ([rule, resourceAttributes]) => {
      const review = { spec: { resourceAttributes } };
      const { status } = await client.create<Review>(ownAccessReviews, undefined, review);
      if (status?.allowed === true) forget(rule);
    });
    await Promise.all(looks);
  };
  const loop = new PollLoop({
    step: lookAgain,
    onError: (error) => log.debug({ err: error }, 'could not look for the missing rights'),
    periodMs: LOOK_AGAIN_MS,
    clock,
  });
  closers.add('look for missing rights', () => loop.stop());
  health.note('rights', () =>
    missing.size === 0 ? undefined : `grant this account: ${[...missing.keys()].join(', ')}`,
  );
  const named = (method: keyof typeof VERBS) => {
    const verb = VERBS[method];
    const call = client[method] as (resource: Resource, ...rest: unknown[]) => Promise<unknown>;
    return async (resource: Resource, ...rest: unknown[]): Promise<unknown> => {
      const [at] = rest;
      try {
        const answer = await call(resource, ...rest);
        if (missing.size > 0) judge(resource, verb, at, undefined);
        return answer;
      } catch (error) {
        judge(resource, verb, at, error ?? 'no error');
        throw error;
      }
    };
  };
  const methods = Object.keys(VERBS) as (keyof typeof VERBS)[];
  const calls = Object.fromEntries(methods.map((method) => [method, named(method)]));
  // Each method passes its arguments and its answer on unchanged.
  return Object.defineProperty({ ...client, ...calls }, 'inFlight', {
    get: () => client.inFlight,
  });
}

/** A rule as a role has it. */
export function ruleFor({ group, plural }: Resource, verbs: readonly string[]): string {
  return `{ apiGroups: ['${group}'], resources: [${plural}], verbs: [${verbs.join(', ')}] }`;
}

function placeOf(at: unknown): string {
  const { namespace } = namesIn(at);
  return namespace === undefined ? '' : ` in ${namespace}`;
}

/** @param at  a namespace, or what names an object */
function namesIn(at: unknown): Pick<RefusedCall, 'namespace' | 'name'> {
  const { namespace, name } = isFields(at) ? at : { namespace: at, name: undefined };
  return {
    ...(typeof namespace === 'string' && namespace !== '' ? { namespace } : {}),
    ...(typeof name === 'string' ? { name } : {}),
  };
}

interface Review {
  readonly status?: { readonly allowed?: boolean };
}

/** Whether an authorizer refused; admission and quotas answer 403 too. */
function isRbac(error: unknown, verb: Verb): error is Error {
  return isForbidden(error) && error.serverMessage.includes(`cannot ${verb} resource`);
}
