import type { KubeClient, ListOptions, ListPage } from './client.ts';
import type { Resource } from './resources.ts';

/** Objects per page of a list, where nothing else is asked for. */
export const PAGE_SIZE = 500;

/** Lists a collection in pages, so that a large one is never in memory as a whole.
 * @throws KubeError */
export async function* listPages<T>(
  client: Pick<KubeClient, 'list'>,
  resource: Resource,
  options: Omit<ListOptions, 'continueToken'> = {},
): AsyncGenerator<ListPage<T>> {
  const { limit = PAGE_SIZE } = options;
  let page = await client.list<T>(resource, { ...options, limit });
  for (;;) {
    yield page;
    const { continueToken } = page;
    if (continueToken === undefined) return;
    page = await client.list<T>(resource, { ...options, limit, continueToken });
  }
}
