import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type SecretContext, type SecretPurpose, secretRef } from '#src/volumes/secret-ref.ts';
import { hasMessage } from './plans.ts';

const N = 'csi.storage.k8s.io/';
const context: SecretContext = {
  volumeName: 'pvname',
  claim: { name: 'pvcname', namespace: 'pvcnamespace', annotations: { akey: 'avalue' } },
};

const OLD_NAME = { csiNodePublishSecretName: 'name' };
const OLD_NAMESPACE = { csiNodePublishSecretNamespace: 'ns' };
const NEW_NAME = { [`${N}node-publish-secret-name`]: 'name' };
const NEW_NAMESPACE = { [`${N}node-publish-secret-namespace`]: 'ns' };
const OLD = { ...OLD_NAME, ...OLD_NAMESPACE };
const NEW = { ...NEW_NAME, ...NEW_NAMESPACE };
const DEFAULT_NAME = { [`${N}secret-name`]: 'default' };
const DEFAULT = { ...DEFAULT_NAME, [`${N}secret-namespace`]: 'default' };

const publish = (parameters: Record<string, string>) =>
  secretRef('NodePublish', parameters, context);
const keysOf = (purpose: string, name: string, namespace: string) => ({
  [`${N}${purpose}secret-name`]: name,
  [`${N}${purpose}secret-namespace`]: namespace,
});
const publishOf = (name: string, namespace: string) =>
  publish(keysOf('node-publish-', name, namespace));
const provisioner = (name: string, namespace = 'ns', claim = context.claim) =>
  secretRef('Provisioner', keysOf('provisioner-', name, namespace), {
    volumeName: 'pvname',
    ...(claim === undefined ? {} : { claim }),
  });
const refuses = (act: () => unknown, message: string | RegExp) =>
  assert.throws(act, hasMessage(message));

const FAILED = 'failed to get name and namespace template from params: ';
const BOTH =
  `${FAILED}NodePublish secrets specified in parameters with both "csi" and ` +
  '"csi.storage.k8s.io/" keys';
const HALF =
  `${FAILED}either name and namespace for NodePublish secrets specified, ` +
  'Both must be specified';
const EMPTY =
  `${FAILED}NodePublish secrets specified in parameters but value of either namespace or name ` +
  'is empty';

describe('the secret that a class names', () => {
  it('is none without parameters (A-17)', () => assert.equal(publish({}), undefined));

  const empty = { csiNodePublishSecretName: '', csiNodePublishSecretNamespace: '' };
  const refusals: readonly (readonly [string, Record<string, string>, string])[] = [
    ['both values empty (A-18)', empty, EMPTY],
    ['only the old name (A-19)', OLD_NAME, HALF],
    ['only the new name (A-20)', NEW_NAME, HALF],
    ['only the old namespace (A-21)', OLD_NAMESPACE, HALF],
    ['only the new namespace (A-22)', NEW_NAMESPACE, HALF],
    ['the old pair and the new pair (A-24)', { ...OLD, ...NEW }, BOTH],
    ['the old pair and the new name (A-25)', { ...OLD, ...NEW_NAME }, BOTH],
    ['the old pair and the new namespace (A-26)', { ...OLD, ...NEW_NAMESPACE }, BOTH],
    ['a name with an empty namespace', keysOf('node-publish-', 'name', ''), EMPTY],
    [
      'half a default pair',
      DEFAULT_NAME,
      'failed to get default name and namespace template from params: either name and ' +
        'namespace for Default secrets specified, Both must be specified',
    ],
  ];
  for (const [what, parameters, message] of refusals)
    it(`is not taken from ${what}`, () => refuses(() => publish(parameters), message));

  const references: readonly (readonly [string, Record<string, string>])[] = [
    ['the old pair (A-23)', OLD],
    ['an old name and a new namespace (A-27)', { ...OLD_NAME, ...NEW_NAMESPACE }],
    ['the new pair (A-28)', NEW],
    ['its own pair before the default pair', { ...NEW, ...DEFAULT }],
  ];
  for (const [what, parameters] of references)
    it(`is taken from ${what}`, () =>
      assert.deepEqual(publish(parameters), { name: 'name', namespace: 'ns' }));

  it('needs no claim if it is static (A-29)', () =>
    assert.deepEqual(
      secretRef('Provisioner', keysOf('provisioner-', 'name', 'ns'), { volumeName: 'pv' }),
      { name: 'name', namespace: 'ns' },
    ));

  it('is the static one, whatever the claim is called (A-30)', () =>
    assert.deepEqual(provisioner('static', 'param-ns'), { name: 'static', namespace: 'param-ns' }));

  it('needs a valid object name (A-31)', () =>
    refuses(() => publishOf('bad name', 'ns'), '"bad name" is not a valid secret name'));
  it('needs a valid namespace (A-32)', () =>
    refuses(() => publishOf('name', 'bad ns'), '"bad ns" is not a valid namespace name'));

  it('is refused in one line without invisible characters', () =>
    refuses(
      () => publishOf('quo"te\u00a0', 'ns'),
      String.raw`"quo\"te\u00a0" is not a valid secret name`,
    ));

  it('needs a namespace besides a name with all variables (A-33)', () => {
    const name = "static-${pv.name}-${pvc.namespace}-${pvc.name}-${pvc.annotations['akey']}";
    refuses(
      () => secretRef('Provisioner', { [`${N}provisioner-secret-name`]: name }, context),
      /Both must be specified$/,
    );
  });

  it('falls back to the default pair', () =>
    assert.deepEqual(publish(DEFAULT), { name: 'default', namespace: 'default' }));

  const purposes: readonly (readonly [SecretPurpose, string])[] = [
    ['Provisioner', 'provisioner-'],
    ['ControllerPublish', 'controller-publish-'],
    ['NodeStage', 'node-stage-'],
    ['NodePublish', 'node-publish-'],
    ['ControllerExpand', 'controller-expand-'],
    ['NodeExpand', 'node-expand-'],
    ['ControllerModify', 'controller-modify-'],
  ];
  for (const [purpose, key] of purposes) {
    it(`is read for ${purpose} from keys that begin with ${N}${key}`, () => {
      const found = secretRef(purpose, keysOf(key, 'name', 'ns'), context);
      assert.deepEqual(found, { name: 'name', namespace: 'ns' });
    });
  }

  for (const purpose of ['Provisioner', 'ControllerPublish', 'NodeStage'] as const) {
    it(`is read for ${purpose} from the deprecated keys`, () => {
      const [name, namespace] = [`csi${purpose}SecretName`, `csi${purpose}SecretNamespace`];
      const found = secretRef(purpose, { [name]: 'name', [namespace]: 'ns' }, context);
      assert.deepEqual(found, { name: 'name', namespace: 'ns' });
    });
  }
});

describe('a template', () => {
  const ALL = '${pv.name}-${pvc.namespace}-${pvc.name}';
  const resolved: readonly (readonly [string, ReturnType<typeof publish>, string, string])[] = [
    [
      'of the provisioner’s secret may contain an annotation (A-34)',
      provisioner("static-${pvc.name}-${pvc.annotations['akey']}", 'static-${pvc.namespace}'),
      'static-pvcname-avalue',
      'static-pvcnamespace',
    ],
    [
      'may contain volume, claim, namespace and annotation (A-35)',
      publishOf(`${ALL}-\${pvc.annotations['akey']}`, 'static-${pv.name}-${pvc.namespace}'),
      'pvname-pvcnamespace-pvcname-avalue',
      'static-pvname-pvcnamespace',
    ],
    [
      'of the provisioner’s secret may contain volume, claim and namespace (A-36)',
      provisioner(ALL, 'static-${pv.name}-${pvc.namespace}'),
      'pvname-pvcnamespace-pvcname',
      'static-pvname-pvcnamespace',
    ],
    ['may be used with a static namespace (A-37)', provisioner('${pvc.name}'), 'pvcname', 'ns'],
    [
      'may be the whole name and the whole namespace (A-38)',
      provisioner('${pvc.name}', '${pvc.namespace}'),
      'pvcname',
      'pvcnamespace',
    ],
    [
      'of the namespace may be used with a static name (A-39)',
      provisioner('static-name-1', '${pvc.namespace}'),
      'static-name-1',
      'pvcnamespace',
    ],
  ];
  for (const [title, actual, name, namespace] of resolved)
    it(title, () => assert.deepEqual(actual, { name, namespace }));

  const unknown: readonly (readonly [string, string, string, tokens: string])[] = [
    ['has only known variables in a namespace (A-40)', 'name', '${bar}', '"bar"'],
    ['has only known variables in a name (A-41)', '${foo}', 'ns', '"foo"'],
    ['of a namespace may not contain the claim’s name', 'name', '${pvc.name}', '"pvc.name"'],
    ['is refused with all unknown variables, sorted', '${b}-$a-${b}', 'ns', '"a" "b"'],
  ];
  for (const [title, name, namespace, tokens] of unknown)
    it(title, () => {
      const template = name.includes('$') ? name : namespace;
      const text = `error resolving value "${template}": invalid tokens: [${tokens}]`;
      refuses(() => publishOf(name, namespace), text);
    });

  it('may not name the claim if it is unknown', () => {
    const { claim: _, ...nameless } = context;
    const parameters = keysOf('provisioner-', '${pvc.name}', 'ns');
    refuses(() => secretRef('Provisioner', parameters, nameless), /\["pvc\.name"\]$/);
  });

  it('is checked in the namespace before the name', () =>
    refuses(() => provisioner('bad name', 'bad ns'), /^"bad ns"/));

  it('is shown with its result if that is no valid name', () => {
    const upper = { name: 'UPPER', namespace: 'a.b', annotations: {} };
    const text = (template: string, value: string, what: string) =>
      `"\${${template}}" resolved to "${value}" which is not a valid ${what} name`;
    refuses(() => provisioner('${pvc.name}', 'ns', upper), text('pvc.name', 'UPPER', 'secret'));
    refuses(
      () => provisioner('name', '${pvc.namespace}', upper),
      text('pvc.namespace', 'a.b', 'namespace'),
    );
  });

  it('may have dots in a name, up to 253 characters, and none in a namespace, up to 63', () => {
    const long = 'a'.repeat(253);
    assert.deepEqual(provisioner('a.b-c.d'), { name: 'a.b-c.d', namespace: 'ns' });
    assert.equal(provisioner(long)?.name, long);
    assert.equal(provisioner('name', 'a'.repeat(63))?.namespace.length, 63);
    refuses(() => provisioner(`${long}a`), /is not a valid secret name$/);
    for (const bad of ['a'.repeat(64), 'a.b'])
      refuses(() => provisioner('name', bad), /is not a valid namespace name$/);
  });

  it('of more than 4096 characters is refused with the name of its parameter', () => {
    const long = 'x'.repeat(4097);
    const refusal = (key: string) =>
      `${FAILED}the parameter ${N}${key} has 4097 characters; a template may have 4096 at most`;
    refuses(() => provisioner(long), refusal('provisioner-secret-name'));
    refuses(() => provisioner('name', long), refusal('provisioner-secret-namespace'));
    assert.equal(provisioner(`${'${}'.repeat(1362)}\${pv.name}`)?.name, 'pvname');
  });
});

describe('a template, expanded as Go’s os.Expand does,', () => {
  const same: readonly (readonly [string, string, string])[] = [
    ['drops ${}', 'a${}b', 'ab'],
    ['drops only the two characters of an unclosed ${ (R-19)', 'a${pv.name', 'apv.name'],
    ['reads the name up to the first closing brace', 'a-${pv.name}.b', 'a-pvname.b'],
  ];
  for (const [title, template, name] of same)
    it(title, () => assert.equal(provisioner(template)?.name, name));

  const unknown: readonly (readonly [string, string, string])[] = [
    ['reads $name as a variable (R-19)', 'a$name-b', '["name"]'],
    ['ends $name at the first character but letter, digit and underscore', '$a_1.b', '["a_1"]'],
    ['reads $$ as the variable $ (R-19)', 'a$$b', '["$"]'],
    ['reads one digit as a variable', 'a$12', '["1"]'],
    ['reads one sign as a variable', 'a$*$#$@$!$?$-', '["!" "#" "*" "-" "?" "@"]'],
    ['finds variables after an unclosed ${', 'a${$b', '["b"]'],
  ];
  for (const [title, template, tokens] of unknown)
    it(title, () =>
      refuses(
        () => provisioner(template),
        `error resolving value ${JSON.stringify(template)}: invalid tokens: ${tokens}`,
      ),
    );

  it('keeps a $ before any other character and at the end', () => {
    refuses(() => provisioner('a$'), '"a$" is not a valid secret name');
    refuses(() => provisioner('a$.b'), '"a$.b" is not a valid secret name');
  });
});
