import type { Scene } from '../../../../harness/differential/scene.ts';
import { PURPOSES } from '../secrets.ts';
import type { Dice } from './dice.ts';
import type { Part, Texts } from './part.ts';

const P = 'csi.storage.k8s.io/';
const DEPRECATED: Texts = {
  'provisioner-': 'csiProvisionerSecret',
  'node-stage-': 'csiNodeStageSecret',
  'node-publish-': 'csiNodePublishSecret',
  'controller-publish-': 'csiControllerPublishSecret',
};

const NAMES = [
  'creds',
  'creds',
  'creds',
  '${pvc.name}',
  '${pvc.namespace}-x',
  "cr${pvc.annotations['a']}",
  "${pvc.annotations['missing']}",
  '${pvc.annotations[a]}',
  '${pvc.annotations["a"]}',
  "x${pvc.annotations['empty']}",
  "${pvc.annotations['empty']}",
  '$pvc',
  '$',
  'a$',
  'a${}b',
  'creds${',
  'creds${pvc.name',
  '$1',
  '$$',
  '${$}',
  '${ pvc.name }',
  '${pvc.name}}',
  '${{pvc.name}}',
  'quo"te',
  'back\\slash',
  'UPPER',
  'x'.repeat(253),
  'x'.repeat(254),
  'é',
  'tab\there',
  'line\nbreak',
  'bell\u0007',
  'nbsp\u00a0',
  'del\u007f',
  'zero\u200b',
  '😀',
  '${é}',
  '${a"b}',
  '${a\tb}',
  '${pv.name}',
  '-x',
  'a..b',
  'a.b',
  '.',
  ' creds',
  'creds ',
  '$_x',
  '$a.b',
  "${pvc.annotations['a']}${pvc.annotations['b']}${pvc.annotations['a']}",
  '${b}${a}${é}${Z}',
  '<&>',
  '\u2028',
] as const;
const NAMESPACES = [
  '(own)',
  '(own)',
  '(own)',
  '(own)',
  '${pvc.namespace}',
  '${pvc.namespace}',
  '${pv.name}',
  '${pvc.name}',
  'x'.repeat(63),
  'x'.repeat(64),
  'Up',
  'a.b',
  '$pvc.namespace',
  "${pvc.annotations['a']}",
  'quo"te',
  'é',
  'nowhere',
  ' ',
  '${pvc.namespace}-\t',
  '9',
  '<x>',
] as const;
/** Without secrets that can't exist or do not exist. */
const FOUND_NAMES = without(NAMES, '${pv.name}');
const FOUND_NAMESPACES = without(NAMESPACES, '${pv.name}', 'x'.repeat(63), 'nowhere', '9');
const ANNOTATIONS: Texts = { a: 'eds', b: 'x.y', empty: '' };

/** A secret that the class names in a random way. */
export function secretPart(dice: Dice): Part {
  const purpose = dice.one(PURPOSES);
  // A secret that is read has to exist: sutler checks that last, unlike upstream.
  const isRead = purpose === 'provisioner-' || purpose === '';
  const name = dice.one(isRead ? FOUND_NAMES : NAMES);
  const namespace = dice.one(isRead ? FOUND_NAMESPACES : NAMESPACES);
  const old = DEPRECATED[purpose];
  const isOld = old !== undefined && dice.hits(0.3);
  const [nameKey, namespaceKey] = isOld
    ? [`${old}Name`, `${old}Namespace`]
    : [`${P}${purpose}secret-name`, `${P}${purpose}secret-namespace`];
  const form = dice.next();
  const half = form < 0.06 ? ', name only' : form < 0.12 ? ', namespace only' : '';
  return {
    label: `secret ${nameKey}=${JSON.stringify(name)} in ${JSON.stringify(namespace)}${half}`,
    parameters: (scene) => ({
      ...(form >= 0.06 && form < 0.12 ? {} : { [nameKey]: name }),
      ...(form < 0.06
        ? {}
        : { [namespaceKey]: namespace === '(own)' ? scene.namespace : namespace }),
    }),
    annotations: ANNOTATIONS,
    prepare: makeSecrets,
  };
}

/** The default secret of scenarios. */
export const soundSecret: Part = {
  label: 'a secret',
  parameters: {
    [`${P}provisioner-secret-name`]: 'creds',
    [`${P}provisioner-secret-namespace`]: '${pvc.namespace}',
  },
  prepare: makeSecrets,
};

function without(list: readonly string[], ...left: readonly string[]): readonly string[] {
  return list.filter((text) => !left.includes(text));
}

async function makeSecrets(scene: Scene): Promise<void> {
  if (scene.happened.has('secrets')) return;
  scene.happened.add('secrets');
  for (const name of [
    'creds',
    'data',
    'others',
    `${scene.namespace}-x`,
    'x',
    'b',
    'ab',
    'a.b',
    'edsx.yeds',
    'credspvc.name',
    'x'.repeat(253),
  ])
    await scene.makeSecret(name, { user: 'anna', of: name, '.hidden-_': '', label: ' é\n"😀 ' });
}
