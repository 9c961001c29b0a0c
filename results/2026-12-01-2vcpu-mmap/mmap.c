#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1e9+t.tv_nsec;}
static int cmp(const void*a,const void*b){double x=*(double*)a,y=*(double*)b;return x<y?-1:x>y;}
#define N 2000
int main(void){ static double a[N],b[N],c[N],d[N]; 
 for(int i=0;i<N;i++){double t=now();for(int j=0;j<100;j++)syscall(SYS_getppid);a[i]=(now()-t)/100;}
 qsort(a,N,8,cmp);printf("getppid %.0f\n",a[N/2]);
 long sizes[]={4096,65536,1<<20,4<<20};
 for(int s=0;s<4;s++){long z=sizes[s];int n=s==3?300:N;
  for(int i=0;i<n;i++){double t0=now();char*p=mmap(0,z,PROT_READ|PROT_WRITE,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);madvise(p,z,MADV_NOHUGEPAGE);double t1=now();double t1b=now();
   for(long k=0;k<z;k+=4096)p[k]=1;double t2=now();munmap(p,z);double t3=now();a[i]=t1-t0;b[i]=(t2-t1b)/(z/4096);c[i]=t3-t2;}
  qsort(a,n,8,cmp);qsort(b,n,8,cmp);qsort(c,n,8,cmp);printf("%ld: mmap+madvise %.0f fault %.0f munmap %.0f (%.1f a page)\n",z,a[n/2],b[n/2],c[n/2],c[n/2]/(z/4096));}
 for(int i=0;i<N;i++){double t0=now();char*p=mmap(0,65536,PROT_READ|PROT_WRITE,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);double t1=now();munmap(p,65536);double t2=now();a[i]=t1-t0;b[i]=t2-t1;}
 qsort(a,N,8,cmp);qsort(b,N,8,cmp);printf("untouched: mmap %.0f munmap %.0f\n",a[N/2],b[N/2]);
 return 0;}
