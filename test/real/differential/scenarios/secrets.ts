import type { Scene } from '../../../harness/differential/scene.ts';
import {
  all,
  bound,
  refused,
  scenario,
  type Scenario,
} from '../../../harness/differential/scenario.ts';

const P = 'csi.storage.k8s.io/';
/** The purposes of secrets, as class parameters spell them. */
export const PURPOSES = [
  'provisioner-',
  'controller-publish-',
  'node-stage-',
  'node-publish-',
  'controller-expand-',
  'node-expand-',
  'controller-modify-',
  '',
] as const;

type Given = Readonly<Record<string, string>>;

/** Secrets that class parameters name. */
export const secrets: readonly Scenario[] = [
  ...PURPOSES.map((purpose) =>
    secret(
      `sec-${purpose === '' ? 'default' : purpose.slice(0, -1)}`,
      `finds the ${purpose === '' ? 'default' : purpose.slice(0, -1)} secret (A-28)`,
      { parameters: (scene) => pair(purpose, 'creds', scene.namespace) },
    ),
  ),
  secret('sec-all', 'finds a secret for each purpose (B-12)', {
    parameters: (scene) =>
      Object.assign(
        {},
        ...PURPOSES.map((purpose) => pair(purpose, `${purpose}creds`, scene.namespace)),
      ) as Given,
    secrets: PURPOSES.map((purpose) => `${purpose}creds`),
  }),
  secret('sec-old', 'finds secrets by their deprecated keys, and passes those (A-23)', {
    parameters: ({ namespace }) =>
      Object.fromEntries(
        ['Provisioner', 'ControllerPublish', 'NodeStage', 'NodePublish'].flatMap((purpose) => [
          [`csi${purpose}SecretName`, 'creds'],
          [`csi${purpose}SecretNamespace`, namespace],
        ]),
      ),
  }),
  secret('sec-mixed-keys', 'accepts a deprecated name with a current namespace (A-27)', {
    parameters: ({ namespace }) => ({
      csiProvisionerSecretName: 'creds',
      [`${P}provisioner-secret-namespace`]: namespace,
    }),
  }),
  secret('sec-twice', 'refuses a secret named by both spellings (A-24, A-25)', {
    parameters: ({ namespace }) => ({
      ...pair('provisioner-', 'creds', namespace),
      csiProvisionerSecretName: 'creds',
      csiProvisionerSecretNamespace: namespace,
    }),
    ends: refused,
  }),
  ...(['name', 'namespace'] as const).flatMap((half) => [
    secret(`sec-only-${half}`, `refuses a provisioner secret with its ${half} only (A-20, A-22)`, {
      parameters: () => ({ [`${P}provisioner-secret-${half}`]: 'creds' }),
      ends: refused,
    }),
    secret(`sec-only-old-${half}`, `refuses an old secret with its ${half} only (A-19, A-21)`, {
      parameters: () => ({
        [`csiNodePublishSecret${half === 'name' ? 'Name' : 'Namespace'}`]: 'creds',
      }),
      ends: refused,
    }),
    secret(`sec-only-default-${half}`, `refuses a default secret with its ${half} only`, {
      parameters: () => ({ [`${P}secret-${half}`]: 'creds' }),
      ends: refused,
    }),
  ]),
  secret('sec-empty', 'refuses empty names (A-18, B-17)', {
    parameters: () => pair('provisioner-', '', ''),
    ends: refused,
  }),
  secret('sec-own-over-default', 'prefers the own secret of a purpose to the default', {
    parameters: ({ namespace }) => ({
      ...pair('', 'fallback', namespace),
      ...pair('provisioner-', 'creds', namespace),
    }),
  }),
  secret('sec-default-template', 'resolves the default secret for each purpose (B-14)', {
    parameters: () => pair('', '${pvc.name}', '${pvc.namespace}'),
    secrets: ['data'],
  }),
  secret('sec-templates', 'resolves each token in a name (A-35)', {
    parameters: () =>
      Object.assign(
        pair(
          'node-publish-',
          "s-${pv.name}-${pvc.namespace}-${pvc.name}-${pvc.annotations['akey']}",
          'n-${pvc.namespace}',
        ),
        pair('node-stage-', '${pvc.name}.${pvc.name}', 'x-${pvc.namespace}'),
      ),
    annotations: { akey: 'avalue' },
  }),
  secret('sec-annotation', 'resolves an annotation in the name of the provisioner secret (A-34)', {
    parameters: () =>
      pair('provisioner-', "cr${pvc.annotations['example.com/which']}", '${pvc.namespace}'),
    annotations: { 'example.com/which': 'eds' },
  }),
  secret('sec-annotation-missing', 'refuses an annotation that the claim does not have', {
    parameters: ({ namespace }) => pair('provisioner-', "cr${pvc.annotations['which']}", namespace),
    ends: refused,
  }),
  secret('sec-token-name', 'refuses an unknown token in a name (A-41)', {
    parameters: ({ namespace }) => pair('node-publish-', 'a-${foo}-${bar}-${foo}', namespace),
    ends: refused,
  }),
  secret('sec-token-namespace', 'refuses an unknown token in a namespace (A-40)', {
    parameters: () => pair('controller-publish-', 'creds', '${bar}'),
    ends: refused,
  }),
  secret('sec-dollars', 'expands $name, $$ and unclosed tokens as Go does (R-19)', {
    parameters: () => pair('node-stage-', 'a$$b', '${pvc.namespace}'),
    ends: refused,
  }),
  secret('sec-unterminated', 'drops an unclosed token (R-19)', {
    parameters: () => pair('node-stage-', 'creds${pvc.name', '${pvc.namespace}'),
  }),
  secret('sec-bad-name', 'refuses a name that no secret can have (A-31)', {
    parameters: ({ namespace }) => pair('node-publish-', 'bad name', namespace),
    ends: refused,
  }),
  secret('sec-bad-namespace', 'refuses a namespace that no namespace can have (A-32)', {
    parameters: () => pair('node-publish-', 'creds', 'bad ns'),
    ends: refused,
  }),
  secret('sec-bad-resolved', 'refuses a name that resolves to none', {
    parameters: ({ namespace }) =>
      pair('node-publish-', "Up-${pvc.annotations['akey']}", namespace),
    annotations: { akey: 'Case' },
    ends: refused,
  }),
  secret('sec-later', 'creates the volume once the secret exists (B-20)', {
    parameters: ({ namespace }) => pair('provisioner-', 'later', namespace),
    ends: all(refused, (scene) => scene.makeSecret('later', { user: 'anna' }), bound),
  }),
  secret('sec-unused-missing', 'does not read the secrets of other purposes', {
    parameters: ({ namespace }) => ({
      ...pair('node-stage-', 'missing', namespace),
      ...pair('controller-modify-', 'missing', 'nowhere'),
    }),
  }),
  secret('sec-no-data', 'accepts a secret without data', {
    parameters: ({ namespace }) => pair('provisioner-', 'bare', namespace),
    prepare: (scene) => scene.makeSecret('bare', {}),
  }),
  scenario('sec-changed', 'reads the values just before each call', {
    class: (scene) => ({ parameters: pair('provisioner-', 'creds', scene.namespace) }),
    prepare: (scene) => scene.makeSecret('creds', { user: 'before' }),
    afterwards: async (scene) => {
      await scene.patch(`/api/v1/namespaces/${scene.namespace}/secrets/creds`, {
        stringData: { user: 'after' },
      });
      await scene.deleteAll();
    },
  }),
];

interface SecretScenario {
  readonly parameters: (scene: Scene) => Given;
  readonly annotations?: Given;
  /** Names of the secrets that exist. Default: creds. */
  readonly secrets?: readonly string[];
  readonly prepare?: (scene: Scene) => Promise<unknown>;
  readonly ends?: (scene: Scene) => Promise<void>;
}

function secret(name: string, title: string, given: SecretScenario): Scenario {
  const { parameters, annotations = {}, secrets: names = ['creds'], ends = bound } = given;
  return scenario(name, title, {
    class: (scene) => ({ parameters: parameters(scene) }),
    claim: { annotations },
    prepare: async (scene) => {
      for (const each of names)
        await scene.makeSecret(each, { user: 'anna', password: `of ${each}` });
      await given.prepare?.(scene);
    },
    ends,
  });
}

function pair(purpose: string, name: string, namespace: string): Record<string, string> {
  return { [`${P}${purpose}secret-name`]: name, [`${P}${purpose}secret-namespace`]: namespace };
}
