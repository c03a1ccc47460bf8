import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { stringify } from 'yaml';
import { isFields } from '#src/runtime/json.ts';
import { type Connection, listAt, textAt } from '../conformance/connection.ts';
import { CHART, helm, NO_HELM, template } from '../harness/helm.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { collectionOf, type ManifestObject, pathOf } from '../harness/real-manifests.ts';

const FIRST = { topology: true };
const SECOND = {
  drivers: { 'shop.example': { 'gateway-service': 'shop/sutler-gateway' } },
  replicas: { jobs: 4 },
  dashboard: { enabled: false },
};

const open = realControlPlane(process.env, { binder: false });

describe('charts/sutler on kube-apiserver', { skip: NO_HELM }, () => {
  let plane: RealControlPlane;
  let api: Connection;
  let atFirst: readonly string[];
  before(async () => {
    plane = await open();
    ({ api } = plane);
    await api.create('/api/v1/namespaces', { metadata: { name: 'sutler' } });
    atFirst = await allObjects();
  });
  after(() => plane.close());

  const run = (command: readonly string[], values: object = {}): string =>
    helm([...command, '-n', 'sutler', `--kubeconfig=${plane.kubeconfig}`], stringify(values));
  /** Paths of all objects of the kinds that the chart has, and of what helm keeps. */
  const allObjects = async (): Promise<readonly string[]> => {
    const rendered = [...template(FIRST), ...template(SECOND)].map((each) =>
      collectionOf(each, 'sutler'),
    );
    const paths: string[] = [];
    for (const path of new Set([...rendered, '/api/v1/namespaces/sutler/secrets']))
      for (const item of listAt(await api.read(path), 'items'))
        paths.push(`${path}/${textAt(item, 'metadata', 'name')}`);
    return paths;
  };
  /** Every object as it is rendered, and no other. */
  const isThere = async (objects: readonly ManifestObject[]): Promise<void> => {
    for (const object of objects) {
      const stored = await api.read(pathOf(object));
      assert.deepEqual(missingIn(stored, object), [], pathOf(object));
    }
    const now = (await allObjects()).filter((path) => !/\/sh\.helm\.release\./.test(path));
    const expected = [...atFirst, ...objects.map((object) => pathOf(object))];
    assert.deepEqual(now.toSorted(), expected.toSorted());
  };

  it('is installed', async () => {
    run(['install', 'sutler', CHART, '-f', '-'], FIRST);
    await isThere(template(FIRST));
  });

  it('is upgraded to other values', async () => {
    run(['upgrade', 'sutler', CHART, '-f', '-'], SECOND);
    await isThere(template(SECOND));
  });

  it('is rolled back', async () => {
    run(['rollback', 'sutler', '1']);
    await isThere(template(FIRST));
    assert.match(run(['history', 'sutler']), /Rollback to 1/);
  });

  it('is uninstalled, and leaves nothing behind', async () => {
    run(['uninstall', 'sutler']);
    assert.deepEqual(await allObjects(), atFirst);
  });
});

/** Places of the wanted value that the stored one lacks; what is empty is as good as absent. */
function missingIn(stored: unknown, wanted: unknown, path = ''): readonly string[] {
  if (isEmpty(wanted) && isEmpty(stored)) return [];
  if (Array.isArray(wanted) || isFields(wanted))
    return Object.entries(wanted).flatMap(([key, value]) =>
      missingIn(Reflect.get(Object(stored) as object, key), value, `${path}/${key}`),
    );
  return Object.is(stored, wanted) ? [] : [`${path}: ${String(stored)} for ${String(wanted)}`];
}

function isEmpty(value: unknown): boolean {
  return (
    value === undefined ||
    value === null ||
    value === '' ||
    ((Array.isArray(value) || isFields(value)) && Object.keys(value).length === 0)
  );
}
