import type { HealthChecks } from '../runtime/health.ts';
import { isFields } from '../runtime/json.ts';
import type { Logger } from '../runtime/log.ts';
import type { KubeClient } from './client.ts';
import { isForbidden } from './kube-error.ts';
import type { Verb } from './request-sender.ts';
import type { Resource } from './resources.ts';

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

/** The same client, which says once in the log, and in /readyz as long as it is so, which right the
 * account lacks and the rule that grants it. The calls themselves fail as before: what needs the
 * right does not work, and the rest goes on. */
export function nameMissingRights(
  client: KubeClient,
  { health, log }: { readonly health: Pick<HealthChecks, 'note'>; readonly log: Logger },
): KubeClient {
  const missing = new Set<string>();
  const judge = (resource: Resource, verb: Verb, at: unknown, error: unknown): void => {
    const rule = ruleFor(resource, [verb]) + placeOf(at);
    if (error === undefined) missing.delete(rule);
    else if (isRbac(error, verb) && !missing.has(rule)) {
      missing.add(rule);
      log.warn(
        { rule, error: error.message },
        'this account lacks a right: what needs it does not work until a role grants the rule',
      );
    }
  };
  health.note('rights', () =>
    missing.size === 0 ? undefined : `grant this account: ${[...missing].join(', ')}`,
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

/** @param at  a namespace, or what names one */
function placeOf(at: unknown): string {
  const namespace = isFields(at) ? at['namespace'] : at;
  return typeof namespace === 'string' && namespace !== '' ? ` in ${namespace}` : '';
}

/** Whether an authorizer refused; admission and quotas answer 403 too. */
function isRbac(error: unknown, verb: Verb): error is Error {
  return isForbidden(error) && error.serverMessage.includes(`cannot ${verb} resource`);
}
