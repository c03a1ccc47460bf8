import type { Cause } from '../api-error.ts';
import { ageColumn, nameColumn } from '../columns.ts';
import { forbiddenValue, invalidValue, notSupported, required } from '../field-error.ts';
import {
  isObject,
  memberAt,
  objectAt,
  plainText,
  textAt,
  textsAt,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { subdomainComplaint } from '../names.ts';
import type { Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';

/** ValidatingWebhookConfigurations: whom the server asks before it stores an object. `admission/`
 * asks them. */
export const validatingWebhooks: Resource = {
  group: 'admissionregistration.k8s.io',
  version: 'v1',
  plural: 'validatingwebhookconfigurations',
  singular: 'validatingwebhookconfiguration',
  kind: 'ValidatingWebhookConfiguration',
  categories: ['api-extensions'],
  namespaced: false,
  struct: schemaOf('ValidatingWebhookConfiguration'),
  hasGeneration: true,
  applyDefaults(object) {
    for (const hook of hooksOf(object)) setDefaults(hook);
  },
  validate: (object) => hooksOf(object).flatMap((hook, i) => hookCauses(hook, `webhooks[${i}]`)),
  columns: [
    nameColumn,
    { name: 'Webhooks', type: 'integer', cell: (object) => hooksOf(object).length },
    ageColumn,
  ],
};

/** The webhooks of a configuration. */
export function hooksOf(configuration: KubeObject): readonly JsonObject[] {
  const hooks = configuration['webhooks'];
  return Array.isArray(hooks) ? hooks.filter(isObject) : [];
}

/** The rules of a webhook. */
export function rulesOf(hook: JsonObject): readonly JsonObject[] {
  const { rules } = hook;
  return Array.isArray(rules) ? rules.filter(isObject) : [];
}

function setDefaults(hook: JsonObject): void {
  hook['failurePolicy'] ??= 'Fail';
  hook['matchPolicy'] ??= 'Equivalent';
  hook['namespaceSelector'] ??= {};
  hook['objectSelector'] ??= {};
  hook['timeoutSeconds'] ??= 10;
  for (const rule of rulesOf(hook)) rule['scope'] ??= '*';
  const service = memberAt(hook, 'clientConfig', 'service');
  if (isObject(service)) service['port'] ??= 443;
}

const TIMEOUT_MAX_SECONDS = 30;

function hookCauses(hook: JsonObject, field: string): Cause[] {
  const name = textAt(hook, 'name');
  const nameComplaint =
    name.split('.').length < 3
      ? 'should be a domain with at least three segments separated by dots'
      : subdomainComplaint(name);
  const timeout = Number(hook['timeoutSeconds']);
  const effects = textAt(hook, 'sideEffects');
  return [
    ...(nameComplaint === undefined ? [] : [invalidValue(`${field}.name`, name, nameComplaint)]),
    ...clientCauses(hook, `${field}.clientConfig`),
    ...rulesOf(hook).flatMap((rule, i) => ruleCauses(rule, `${field}.rules[${i}]`)),
    ...oneOf(hook, 'failurePolicy', ['Fail', 'Ignore'], field),
    ...oneOf(hook, 'matchPolicy', ['Equivalent', 'Exact'], field),
    ...(effects === ''
      ? [required(`${field}.sideEffects`, 'must specify one of None, NoneOnDryRun')]
      : oneOf(hook, 'sideEffects', ['None', 'NoneOnDryRun'], field)),
    ...(timeout >= 1 && timeout <= TIMEOUT_MAX_SECONDS
      ? []
      : [
          invalidValue(
            `${field}.timeoutSeconds`,
            timeout,
            'the timeout value must be between 1 and 30 seconds',
          ),
        ]),
    ...versionCauses(textsAt(hook, 'admissionReviewVersions'), `${field}.admissionReviewVersions`),
    // The real server evaluates these expressions (CEL). To ignore them would call webhooks for
    // requests that the configuration excludes.
    ...(hook['matchConditions'] === undefined
      ? []
      : [
          forbiddenValue(
            `${field}.matchConditions`,
            'the sandbox does not evaluate CEL expressions: leave matchConditions out',
          ),
        ]),
  ];
}

function clientCauses(hook: JsonObject, field: string): Cause[] {
  const client = objectAt(hook, 'clientConfig');
  const { url, service } = client;
  if ((url === undefined) === (service === undefined))
    return [required(field, 'exactly one of url or service is required')];
  if (url === undefined) {
    // There is no network of Services here.
    return [
      forbiddenValue(`${field}.service`, 'the sandbox has no Services: set clientConfig.url'),
    ];
  }
  const text = plainText(url);
  const parsed = URL.parse(text);
  const complaint =
    parsed === null
      ? 'url must be a valid URL'
      : parsed.protocol !== 'https:'
        ? `'https' is the only allowed URL scheme; desired format: https://host[/path]`
        : parsed.username !== '' || parsed.search !== '' || parsed.hash !== ''
          ? 'user information, queries and fragments are not permitted in the URL'
          : undefined;
  return complaint === undefined ? [] : [invalidValue(`${field}.url`, text, complaint)];
}

function ruleCauses(rule: JsonObject, field: string): Cause[] {
  const known = ['*', 'CONNECT', 'CREATE', 'DELETE', 'UPDATE'];
  return [
    ...['operations', 'apiGroups', 'apiVersions', 'resources']
      .filter((name) => textsAt(rule, name).length === 0)
      .map((name) => required(`${field}.${name}`)),
    ...textsAt(rule, 'operations')
      .filter((each) => !known.includes(each))
      .map((each, i) => notSupported(`${field}.operations[${i}]`, each, known)),
    ...oneOf(rule, 'scope', ['*', 'Cluster', 'Namespaced'], field),
  ];
}

function versionCauses(versions: readonly string[], field: string): Cause[] {
  if (versions.length === 0) return [required(field, 'must specify one of v1, v1beta1')];
  if (versions.includes('v1') || versions.includes('v1beta1')) return [];
  const detail = 'must include at least one of v1, v1beta1';
  return [invalidValue(field, [...versions], detail)];
}

function oneOf(
  object: JsonObject,
  name: string,
  allowed: readonly string[],
  field: string,
): Cause[] {
  const value = textAt(object, name);
  return allowed.includes(value) ? [] : [notSupported(`${field}.${name}`, value, allowed)];
}
