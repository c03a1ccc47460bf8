import { ListWatch, type ListWatchOptions } from './list-watch.ts';
import { Store, type StoreOptions, type Transformed } from './store.ts';

export type { Change, Transformed } from './store.ts';

/** `onChange` is called for the objects of the first list too. */
export interface ReflectorOptions<T extends Transformed>
  extends StoreOptions<T>, Omit<ListWatchOptions, 'resource' | 'log'> {}

/** Lists and watches one collection of the API server until it is stopped, and keeps its objects in
 * a store. */
export interface Reflector<T> extends Pick<
  ListWatch,
  'hasSynced' | 'waitForSync' | 'trouble' | 'isFollowing' | 'stop'
> {
  /** An object by "namespace/name", or by "name". */
  get(key: string): T | undefined;
  list(): IterableIterator<T>;
  readonly size: number;
}

/** Starts at once. */
export function startReflector<T extends Transformed>(options: ReflectorOptions<T>): Reflector<T> {
  const store = new Store(options);
  const listWatch = new ListWatch(options, store);
  return {
    get hasSynced() {
      return listWatch.hasSynced;
    },
    get trouble() {
      return listWatch.trouble;
    },
    get isFollowing() {
      return listWatch.isFollowing;
    },
    get size() {
      return store.size;
    },
    waitForSync: (signal) => listWatch.waitForSync(signal),
    get: (key) => store.get(key),
    list: () => store.list(),
    stop: () => listWatch.stop(),
  };
}
