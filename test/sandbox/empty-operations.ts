import { namespaces } from '../../sandbox/api/kinds/core.ts';
import { Operations } from '../../sandbox/api/operations.ts';
import { Registry } from '../../sandbox/api/registry.ts';
import { Store } from '../../sandbox/api/store.ts';

/** The operations of an API server that has nothing but the namespace default. */
export function emptyOperations(): Operations {
  const operations = new Operations({
    registry: new Registry(),
    store: new Store({ historySize: 1000 }),
    nowMs: () => Date.now(),
  });
  operations.create(namespaces, undefined, { metadata: { name: 'default' } });
  return operations;
}
