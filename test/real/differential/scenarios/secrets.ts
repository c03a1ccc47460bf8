import { all, bound, refused, type Scenario } from '../../../harness/differential/scenario.ts';
import type { Scene } from '../../../harness/differential/scene.ts';

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
    secret({
      name: `sec-${purpose === '' ? 'default' : purpose.slice(0, -1)}`,
      title: `finds the ${purpose === '' ? 'default' : purpose.slice(0, -1)} secret (A-28)`,
      parameters: (scene) => pair(purpose, 'creds', scene.namespace),
      ends: bound,
    }),
  ),
  secret({
    name: 'sec-all',
    title: 'finds a secret for each purpose (B-12)',
    parameters: (scene) =>
      Object.assign(
        {},
        ...PURPOSES.map((purpose) => pair(purpose, `${purpose}creds`, scene.namespace)),
      ) as Given,
    secrets: PURPOSES.map((purpose) => `${purpose}creds`),
    ends: bound,
  }),
  secret({
    name: 'sec-old',
    title: 'finds secrets by their deprecated keys, and passes those (A-23)',
    parameters: ({ namespace }) =>
      Object.fromEntries(
        ['Provisioner', 'ControllerPublish', 'NodeStage', 'NodePublish'].flatMap((purpose) => [
          [`csi${purpose}SecretName`, 'creds'],
          [`csi${purpose}SecretNamespace`, namespace],
        ]),
      ),
    ends: bound,
  }),
  secret({
    name: 'sec-mixed-keys',
    title: 'accepts a deprecated name with a current namespace (A-27)',
    parameters: ({ namespace }) => ({
      csiProvisionerSecretName: 'creds',
      [`${P}provisioner-secret-namespace`]: namespace,
    }),
    ends: bound,
  }),
  secret({
    name: 'sec-twice',
    title: 'refuses a secret named by both spellings (A-24)',
    parameters: ({ namespace }) => ({
      ...pair('provisioner-', 'creds', namespace),
      csiProvisionerSecretName: 'creds',
      csiProvisionerSecretNamespace: namespace,
    }),
    ends: refused,
  }),
  secret({
    name: 'sec-twice-stage',
    title: 'refuses another purpose by both spellings (A-25)',
    parameters: ({ namespace }) => ({
      ...pair('node-stage-', 'creds', namespace),
      csiNodeStageSecretName: 'creds',
    }),
    ends: refused,
  }),
  ...(['name', 'namespace'] as const).flatMap((half) => [
    secret({
      name: `sec-only-${half}`,
      title: `refuses a provisioner secret with its ${half} only (A-20, A-22)`,
      parameters: () => ({ [`${P}provisioner-secret-${half}`]: 'creds' }),
      ends: refused,
    }),
    secret({
      name: `sec-only-old-${half}`,
      title: `refuses a deprecated publish secret with its ${half} only (A-19, A-21)`,
      parameters: () => ({
        [`csiNodePublishSecret${half === 'name' ? 'Name' : 'Namespace'}`]: 'creds',
      }),
      ends: refused,
    }),
    secret({
      name: `sec-only-default-${half}`,
      title: `refuses a default secret with its ${half} only`,
      parameters: () => ({ [`${P}secret-${half}`]: 'creds' }),
      ends: refused,
    }),
  ]),
  secret({
    name: 'sec-empty',
    title: 'refuses empty names (A-18, B-17)',
    parameters: () => pair('provisioner-', '', ''),
    ends: refused,
  }),
  secret({
    name: 'sec-empty-namespace',
    title: 'refuses an empty namespace',
    parameters: () => pair('node-expand-', 'creds', ''),
    ends: refused,
  }),
  secret({
    name: 'sec-own-over-default',
    title: 'prefers the own secret of a purpose to the default',
    parameters: ({ namespace }) => ({
      ...pair('', 'fallback', namespace),
      ...pair('provisioner-', 'creds', namespace),
    }),
    ends: bound,
  }),
  secret({
    name: 'sec-default-template',
    title: 'resolves the default secret for each purpose (B-14)',
    parameters: () => pair('', '${pvc.name}', '${pvc.namespace}'),
    secrets: ['data'],
    ends: bound,
  }),
  secret({
    name: 'sec-templates',
    title: 'resolves each token in a name (A-35)',
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
    ends: bound,
  }),
  secret({
    name: 'sec-annotation',
    title: 'resolves an annotation in the name of the provisioner secret (A-34)',
    parameters: () =>
      pair('provisioner-', "cr${pvc.annotations['example.com/which']}", '${pvc.namespace}'),
    annotations: { 'example.com/which': 'eds' },
    ends: bound,
  }),
  secret({
    name: 'sec-annotation-missing',
    title: 'refuses an annotation that the claim does not have',
    parameters: ({ namespace }) => pair('provisioner-', "cr${pvc.annotations['which']}", namespace),
    ends: refused,
  }),
  secret({
    name: 'sec-token-name',
    title: 'refuses an unknown token in a name (A-41)',
    parameters: ({ namespace }) => pair('node-publish-', 'a-${foo}-${bar}-${foo}', namespace),
    ends: refused,
  }),
  secret({
    name: 'sec-token-namespace',
    title: 'refuses an unknown token in a namespace (A-40)',
    parameters: () => pair('controller-publish-', 'creds', '${bar}'),
    ends: refused,
  }),
  secret({
    name: 'sec-token-claim-namespace',
    title: 'refuses the name of the claim in a namespace',
    parameters: () => pair('controller-publish-', 'creds', 'x-${pvc.name}'),
    ends: refused,
  }),
  secret({
    name: 'sec-dollars',
    title: 'expands $name, $$ and unclosed tokens as Go does (R-19)',
    parameters: () => pair('node-stage-', 'a$$b', '${pvc.namespace}'),
    ends: refused,
  }),
  secret({
    name: 'sec-dollar-word',
    title: 'reads $ and a name as a token (R-19)',
    parameters: () => pair('node-stage-', 'a-$pvc.name', '${pvc.namespace}'),
    ends: refused,
  }),
  secret({
    name: 'sec-unterminated',
    title: 'drops an unclosed token (R-19)',
    parameters: () => pair('node-stage-', 'creds${pvc.name', '${pvc.namespace}'),
    ends: bound,
  }),
  secret({
    name: 'sec-bad-name',
    title: 'refuses a name that no secret can have (A-31)',
    parameters: ({ namespace }) => pair('node-publish-', 'bad name', namespace),
    ends: refused,
  }),
  secret({
    name: 'sec-bad-namespace',
    title: 'refuses a namespace that no namespace can have (A-32)',
    parameters: () => pair('node-publish-', 'creds', 'bad ns'),
    ends: refused,
  }),
  secret({
    name: 'sec-bad-resolved',
    title: 'refuses a name that resolves to none',
    parameters: ({ namespace }) =>
      pair('node-publish-', "Up-${pvc.annotations['akey']}", namespace),
    annotations: { akey: 'Case' },
    ends: refused,
  }),
  secret({
    name: 'sec-missing',
    title: 'refuses while the provisioner secret is missing (B-20)',
    parameters: ({ namespace }) => pair('provisioner-', 'missing', namespace),
    ends: refused,
  }),
  secret({
    name: 'sec-later',
    title: 'creates the volume once the secret exists',
    parameters: ({ namespace }) => pair('provisioner-', 'later', namespace),
    ends: all(refused, (scene) => scene.makeSecret('later', { user: 'anna' }), bound),
  }),
  secret({
    name: 'sec-unused-missing',
    title: 'does not read the secrets of other purposes',
    parameters: ({ namespace }) => ({
      ...pair('node-stage-', 'missing', namespace),
      ...pair('controller-modify-', 'missing', 'nowhere'),
    }),
    ends: bound,
  }),
  secret({
    name: 'sec-no-data',
    title: 'accepts a secret without data',
    parameters: ({ namespace }) => pair('provisioner-', 'bare', namespace),
    prepare: (scene) => scene.makeSecret('bare', {}),
    ends: bound,
  }),
  {
    name: 'sec-changed',
    title: 'reads the values just before each call',
    class: (scene) => ({ parameters: pair('provisioner-', 'creds', scene.namespace) }),
    prepare: (scene) => scene.makeSecret('creds', { user: 'before' }),
    ends: bound,
    afterwards: async (scene) => {
      await scene.patch(`/api/v1/namespaces/${scene.namespace}/secrets/creds`, {
        stringData: { user: 'after' },
      });
      await scene.deleteAll();
    },
  },
];

interface SecretScenario {
  readonly name: string;
  readonly title: string;
  readonly parameters: (scene: Scene) => Given;
  readonly annotations?: Given;
  /** Names of the secrets that exist. Default: creds. */
  readonly secrets?: readonly string[];
  readonly prepare?: (scene: Scene) => Promise<unknown>;
  readonly ends: (scene: Scene) => Promise<void>;
}

function secret(given: SecretScenario): Scenario {
  return {
    name: given.name,
    title: given.title,
    class: (scene) => ({ parameters: given.parameters(scene) }),
    ...(given.annotations === undefined ? {} : { claim: { annotations: given.annotations } }),
    prepare: async (scene) => {
      for (const name of given.secrets ?? ['creds'])
        await scene.makeSecret(name, { user: 'anna', password: `of ${name}` });
      await given.prepare?.(scene);
    },
    ends: given.ends,
  };
}

function pair(purpose: string, name: string, namespace: string): Record<string, string> {
  return { [`${P}${purpose}secret-name`]: name, [`${P}${purpose}secret-namespace`]: namespace };
}
